"""Real jobs killed at random moments, each time with another number of workers: `python -m tests.soak.moves --help`.

Each run of a job ends with `kill -9` of all its processes: while they start, while the state moves, in the midst of work.
The next one has another number of workers. All outputs must be those of a run in which nothing happened.
"""

from __future__ import annotations

from tests.runtime.supervisor.moving_job import APP, EPOCHS, Runs
from tests.soak.killed_jobs import FINISHED, FORWARD, MOVED, KilledJobs, layout_of

MOST_WORKERS = 4


class Moves(KilledJobs):
    """Jobs whose runs have other numbers of workers each."""

    app, counts, latest, epochs_left, at_epochs = APP, "moves", 12.0, 3, 0.6

    def work(self, runs: Runs) -> None:
        """See `KilledJobs`."""
        upto, refused, over = 0, False, False
        while not over:
            upto = min(EPOCHS, upto + self.random.randint(3, 12))
            runs.upto(upto)
            over = upto == EPOCHS and not refused and self.random.random() < 0.5
            there = layout_of(runs.folder)
            workers = there.workers if refused and there else self.random.randint(1, MOST_WORKERS)
            with runs.start("-w", str(workers), "--store", str(runs.folder / "store")) as process:
                if not over:
                    self.wait(runs, upto, process)
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


if __name__ == "__main__":
    Moves.main(__doc__, "changes of the number of workers")
