"""Real jobs killed at random moments, each time with another number of workers: `python -m tests.soak.moves --help`.

Each run of a job ends with `kill -9` of all its processes: while they start, while the state moves, in the midst of work.
The next one has another number of workers. All outputs must be those of a run in which nothing happened.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from subprocess import Popen

from recovery.store.address import StoreAddress
from recovery.store.identity import store_id
from recovery.store.interface import StoreError
from runtime.page.recorded import read_saved
from tests.runtime.supervisor.moving_job import EPOCHS, Runs, right

MOVED = "has moved to"
FORWARD = "they go on until all have saved the same"
FINISHED = "an earlier run has finished it"
MOST_WORKERS = 4


class Moves:
    """Jobs, one after the other, until so many changes of workers have been made."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = Random(seed)
        self.folder = folder
        self.expected = right(folder / "right").outputs()
        self.tally: Counter[str] = Counter()

    def job(self, number: int) -> bool:
        """One job from its begin to its end; True if its outputs are right."""
        folder = self.folder / f"job-{number}"
        folder.mkdir()
        runs, upto, refused, over = Runs(folder), 0, False, False
        while not over:
            upto = min(EPOCHS, upto + self.random.randint(3, 12))
            runs.upto(upto)
            over = upto == EPOCHS and not refused and self.random.random() < 0.5
            there = workers_of(folder / "store")
            workers = there if refused and there else self.random.randint(1, MOST_WORKERS)
            with runs.start("-w", str(workers), "--store", str(folder / "store")) as process:
                if not over:
                    self._wait(runs, upto, process)
                notes = process.communicate()[1] if over or process.poll() is not None else runs.end(process)
            refused = process.returncode == 1
            assert not refused or FINISHED in notes, notes
            assert not over or refused or process.returncode == 0, notes
            over = process.returncode == 0
            self.tally.update(
                {
                    "runs": 1,
                    "moves": MOVED in notes,
                    "killed": process.returncode == -9,
                    "rolled forward": FORWARD in notes,
                }
            )
        good = runs.outputs() == self.expected
        if good:
            shutil.rmtree(folder)
        return good

    def _wait(self, runs: Runs, upto: int, process: Popen[str]) -> None:
        """Wait until a kill is due: some time after the start, or once an epoch is published."""
        until = time.monotonic() + self.random.uniform(0.5, 12.0)
        wanted = upto - self.random.randint(1, 3) if self.random.random() < 0.6 else None
        if wanted is not None:
            until += 60.0
        while time.monotonic() < until and process.poll() is None:
            if wanted is not None and any(int(name[6:16]) >= wanted for name in runs.published() if name[6:].isdigit()):
                time.sleep(self.random.uniform(0.0, 0.5))
                return
            time.sleep(0.05)


def workers_of(folder: Path) -> int | None:
    """Number of workers of the job of a store; None if it has none yet."""
    try:
        with StoreAddress.of(folder).open() as store:
            layout = read_saved(store, store_id(store)).layout
    except StoreError:
        return None
    return None if layout is None else layout.workers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=20, help="changes of the number of workers")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="moves-"))
    moves = Moves(options.seed, folder)
    number = 0
    while moves.tally["moves"] < options.moves:
        good = moves.job(number)
        number += 1
        print(f"job {number}: {dict(moves.tally)}", flush=True)
        if not good:
            raise SystemExit(f"the outputs of {folder / f'job-{number - 1}'} are wrong")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
