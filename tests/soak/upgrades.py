"""Real jobs killed at random moments, and then given another program: `python -m tests.soak.upgrades --help`.

Each run of a job is ended by kill -9: of all processes, of the supervisor, or of all after a worker, a spare or the monitor
was killed. `falkirk upgrade` is killed as well, in the midst of what it writes. Some runs have another number of workers. All
outputs must be those of a run in which nothing happened.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from subprocess import Popen

from recovery.layout import Layout
from recovery.store.address import StoreAddress
from recovery.store.identity import store_id
from recovery.store.interface import StoreError
from runtime.page.recorded import read_saved
from tests.runtime.supervisor.moving_job import CHANGING, EPOCHS, FORMS, Runs, renames, right
from tests.support.processes import descendants

INTERVAL = 1 << 6
"""Bit of a form that takes no upgrade."""

CANNOT = "the store cannot go on with this program"
BUSY = "is using the store"
MOVED = "has moved to"
FORWARD = "they go on until all have saved the same"
FINISHED = "an earlier run has finished it"
MOST_WORKERS = 3


class Upgrades:
    """Jobs, one after the other, until so many changes of the program have been made."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = Random(seed)
        self.folder = folder
        self.expected = right(folder / "right", CHANGING).outputs()
        self.tally: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()

    def job(self, number: int) -> bool:
        """One job from its begin to its end; True if its outputs are right."""
        folder = self.folder / f"job-{number}"
        folder.mkdir()
        runs, upto, form, workers = Runs(folder, CHANGING), 0, 0, self.random.randint(1, MOST_WORKERS)
        while True:
            upto = min(EPOCHS, upto + self.random.randint(4, 14))
            runs.upto(upto)
            if self._run(runs, upto, form, workers):
                break
            there = layout_of(folder)
            workers = there.workers if there is not None else workers
            form = self._upgrade(runs, form)
            if self.random.random() < 0.4:
                workers = self.random.randint(1, MOST_WORKERS)
        good = runs.outputs() == self.expected
        if good:
            shutil.rmtree(folder)
        return good

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
        self._wait(runs, upto, process)
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

    def _wait(self, runs: Runs, upto: int, process: Popen[str]) -> None:
        """Wait until a kill is due: some time after the start, or once an epoch is published."""
        until = time.monotonic() + self.random.uniform(0.5, 10.0)
        wanted = upto - self.random.randint(1, 4) if self.random.random() < 0.7 else None
        if wanted is not None:
            until += 60.0
        while time.monotonic() < until and process.poll() is None:
            if wanted is not None and any(int(name[6:16]) >= wanted for name in runs.published() if name[6:].isdigit()):
                time.sleep(self.random.uniform(0.0, 0.5))
                return
            time.sleep(0.05)

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


def written(store: Path) -> set[str]:
    """Blobs of a store, and files that are to become some."""
    found = set()
    for folder in store.glob("[wm]o*"):
        with suppress(FileNotFoundError):
            found |= {f"{folder.name}/{name}" for name in os.listdir(folder)}
    return found


def layout_of(folder: Path) -> Layout | None:
    """Layout of the job of a store; None if it has none yet."""
    try:
        with StoreAddress.of(folder / "store").open() as store:
            return read_saved(store, store_id(store)).layout
    except StoreError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrades", type=int, default=20, help="changes of the program")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="upgrades-"))
    upgrades = Upgrades(options.seed, folder)
    number = 0
    while upgrades.tally["upgrades"] < options.upgrades:
        good = upgrades.job(number)
        number += 1
        print(f"job {number}: {dict(upgrades.tally)}", flush=True)
        if not good:
            raise SystemExit(f"the outputs of {folder / f'job-{number - 1}'} are wrong")
    for reason, count in upgrades.refusals.most_common():
        print(f"{count} times: {reason}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
