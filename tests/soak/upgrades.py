"""Real jobs killed at random moments, and then given another program: `python -m tests.soak.upgrades --help`.

Each run of a job is ended by kill -9: of all processes, of the supervisor, or of all after a worker, a spare or the monitor
was killed. `falkirk upgrade` is killed as well, in the midst of what it writes. Some runs have another number of workers. All
outputs must be those of a run in which nothing happened.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

from tests.runtime.supervisor.moving_job import CHANGING, EPOCHS, FORMS, Runs, renames
from tests.soak.killed_jobs import FINISHED, FORWARD, MOVED, KilledJobs, layout_of
from tests.support.processes import descendants

INTERVAL = 1 << 6
"""Bit of a form that takes no upgrade."""

CANNOT = "the store cannot go on with this program"
BUSY = "is using the store"
MOST_WORKERS = 3


class Upgrades(KilledJobs):
    """Jobs whose program changes between their runs."""

    app, counts, latest, epochs_left, at_epochs = CHANGING, "upgrades", 10.0, 4, 0.7

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, folder)
        self.refusals: Counter[str] = Counter()

    def work(self, runs: Runs) -> None:
        """See `KilledJobs`."""
        upto, form, workers = 0, 0, self.random.randint(1, MOST_WORKERS)
        while True:
            upto = min(EPOCHS, upto + self.random.randint(4, 14))
            runs.upto(upto)
            if self._run(runs, upto, form, workers):
                return
            there = layout_of(runs.folder)
            workers = there.workers if there is not None else workers
            form = self._upgrade(runs, form)
            if self.random.random() < 0.4:
                workers = self.random.randint(1, MOST_WORKERS)

    def _run(self, runs: Runs, upto: int, form: int, workers: int) -> bool:
        """One run, which is killed or ends; True for the last one."""
        options = ("--store", str(runs.folder / "store"), "--arg", f"form={form}")
        while True:
            over = upto == EPOCHS and self.random.random() < 0.5
            with runs.start("-w", str(workers), *options) as process:
                if over:
                    notes = process.communicate()[1]
                else:
                    notes = self._kill(runs, upto, process)
            self.tally.update({"runs": 1, "moves": MOVED in notes, "rolled forward": FORWARD in notes})
            if process.returncode == 1 and BUSY in notes:  # processes of a killed supervisor are still there
                time.sleep(0.1)
                continue
            if process.returncode == 1 and FINISHED in notes:
                there = layout_of(runs.folder)
                assert there is not None, notes
                workers = there.workers
                continue
            assert process.returncode in (0, -signal.SIGKILL), notes
            assert not over or process.returncode == 0, notes
            return process.returncode == 0

    def _kill(self, runs: Runs, upto: int, process: Popen[str]) -> str:
        """Kill a run after a while: one process, and then all; returns its notes."""
        self.wait(runs, upto, process)
        which = self.random.choice(("all", "supervisor", "one"))
        if which == "one" and process.poll() is None:
            with suppress(ProcessLookupError, FileNotFoundError):
                found = descendants(process.pid)
                if found:
                    os.kill(self.random.choice(found), signal.SIGKILL)
                    self.tally["killed: one process"] += 1
            time.sleep(self.random.uniform(0.0, 3.0))
        elif which == "supervisor" and process.poll() is None:
            process.kill()
            self.tally["killed: supervisor"] += 1
            return process.communicate()[1]
        if process.poll() is not None:
            return process.communicate()[1]
        self.tally["killed: all"] += 1
        return runs.end(process)

    def _upgrade(self, runs: Runs, form: int) -> int:
        """Change the program, with kills in the midst of it; returns the form that the store has now."""
        before = layout_of(runs.folder)
        if before is None:
            return form
        new = self.random.randrange(FORMS)
        options = ("--store", str(runs.folder / "store"), "--yes", "--arg", f"form={new}", *renames(form, new))
        while True:
            killed_at = self.random.randint(0, 4) if self.random.random() < 0.5 else None
            with runs.start(*options, command="upgrade") as process:
                if killed_at is not None:
                    self._kill_upgrade(runs.folder / "store", before.number, killed_at, process)
                notes = process.communicate()[1]
            after = layout_of(runs.folder)
            assert after is not None
            if process.returncode == -signal.SIGKILL:
                done = after.number != before.number
                self.tally["upgrades killed after their commit" if done else "upgrades killed before"] += 1
                if done:
                    self.tally["upgrades"] += 1
                    return new
            elif process.returncode == 0:
                done = after.number != before.number
                assert done == ((new ^ form) & ~INTERVAL != 0), notes
                self.tally["upgrades"] += done
                return new
            elif BUSY in notes:
                time.sleep(0.1)
            else:
                assert CANNOT in notes, notes
                assert after.number == before.number, notes
                self.tally["upgrades refused"] += 1
                self.refusals.update(notes.split(CANNOT)[1].strip(": \n").splitlines()[:1])
                return form

    def _kill_upgrade(self, store: Path, layout: int, blobs: int, process: Popen[str]) -> None:
        """Kill `falkirk upgrade` once it has written so many blobs, of later layouts than this one."""
        there = written(store)
        while process.poll() is None:
            if len(written(store) - there) >= max(1, blobs):
                if blobs:
                    process.kill()
                    return
                break
        if process.poll() is None:
            time.sleep(self.random.uniform(0.0, 0.02))
            process.kill()

    def report(self) -> None:
        """See `KilledJobs`."""
        for reason, count in self.refusals.most_common():
            print(f"{count} times: {reason}")


def written(store: Path) -> set[str]:
    """Blobs of a store, and files that are to become some."""
    found = set()
    for folder in store.glob("[wm]o*"):
        with suppress(FileNotFoundError):
            found |= {f"{folder.name}/{name}" for name in os.listdir(folder)}
    return found


if __name__ == "__main__":
    Upgrades.main(__doc__, "changes of the program")
