"""Real jobs, one after the other, whose runs are killed at random moments; their outputs are those of an undisturbed run."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from random import Random
from subprocess import Popen

from recovery.layout import Layout
from recovery.store.address import StoreAddress
from recovery.store.identity import store_id
from recovery.store.interface import StoreError
from runtime.page.recorded import read_saved
from tests.runtime.supervisor.moving_job import Runs, right

MOVED = "has moved to"
FORWARD = "they go on until all have saved the same"
FINISHED = "an earlier run has finished it"


class KilledJobs(ABC):
    """Jobs of a program, until so many changes of them have been made.

    Class attributes:
        app: the program.
        counts: the entry of the tally that counts changes.
        latest: most seconds from a start to a kill that waits for no epoch.
        epochs_left: most epochs that a kill may be early, if it waits for one.
        at_epochs: probability of that.
    """

    app: str
    counts: str
    latest: float
    epochs_left: int
    at_epochs: float

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = Random(seed)
        self.folder = folder
        self.expected = right(folder / "right", self.app).outputs()
        self.tally: Counter[str] = Counter()

    @abstractmethod
    def work(self, runs: Runs) -> None:
        """One job from its begin to its end."""

    def job(self, number: int) -> bool:
        """Work through a job; True if its outputs are right."""
        folder = self.folder / f"job-{number}"
        folder.mkdir()
        runs = Runs(folder, self.app)
        self.work(runs)
        good = runs.outputs() == self.expected
        if good:
            shutil.rmtree(folder)
        return good

    def wait(self, runs: Runs, upto: int, process: Popen[str]) -> None:
        """Wait until a kill is due: some time after the start, or once an epoch is published."""
        until = time.monotonic() + self.random.uniform(0.5, self.latest)
        wanted = upto - self.random.randint(1, self.epochs_left) if self.random.random() < self.at_epochs else None
        if wanted is not None:
            until += 60.0
        while time.monotonic() < until and process.poll() is None:
            if wanted is not None and any(int(name[6:16]) >= wanted for name in runs.published() if name[6:].isdigit()):
                time.sleep(self.random.uniform(0.0, 0.5))
                return
            time.sleep(0.05)

    @classmethod
    def main(cls, doc: str | None, what: str) -> None:
        """Run jobs as the command line says; `what`: changes, in words."""
        parser = argparse.ArgumentParser(description=doc)
        parser.add_argument(f"--{cls.counts}", dest="count", type=int, default=20, help=what)
        parser.add_argument("--seed", type=int, default=1)
        options = parser.parse_args()
        folder = Path(tempfile.mkdtemp(prefix=f"{cls.counts}-"))
        jobs, number = cls(options.seed, folder), 0
        while jobs.tally[cls.counts] < options.count:
            good = jobs.job(number)
            number += 1
            print(f"job {number}: {dict(jobs.tally)}", flush=True)
            if not good:
                raise SystemExit(f"the outputs of {folder / f'job-{number - 1}'} are wrong")
        jobs.report()
        shutil.rmtree(folder)

    def report(self) -> None:  # noqa: B027
        """Print more of what was seen, at the end."""


def layout_of(folder: Path) -> Layout | None:
    """Layout of the job of a folder; None if its store has none yet."""
    try:
        with StoreAddress.of(folder / "store").open() as store:
            return read_saved(store, store_id(store)).layout
    except StoreError:
        return None
