"""The demo: a year of flights (flights.py) with the page open on it; a worker is killed midway; nobody can tell.

    falkirk demo               in the repository, `make demo`
    falkirk demo --no-kill     without the failure

What came out is compared twice: with what Polars and networkx find, and, time by time and row by row, with a run of the same
program on one worker, that had neither a store nor a failure.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import flights
import flights_check
import flights_data
import flights_failure
import flights_report
import polars as pl

import falkirk
from falkirk import Limits
from libraries.spark.host.host import host_of
from runtime.program import Program
from runtime.session.job import Result
from timely.errors import FalkirkError

AHEAD = Limits(epochs=3 * flights_data.WEEK)
"""So far may be read ahead of what is complete: whenever Spark is done with a week, the next one is ready."""


def main(workers: int = 2, quiet: bool = False, kill: bool = True, file: Path | None = None) -> int:
    """Run the demo on `workers` processes; the exit code: 0 if all that came out is right.

    Args:
        quiet: print the verdict only.
        kill: kill one of the workers when half of the hours are through.
        file: the flights, in place of all of the year.
    """
    file = file or flights_data.prepare()
    program = Program(flow=partial(flights.build, file))
    say = flights_report.speaker(quiet)
    failure = flights_failure.Failure(_halfway(file), workers - 1, say) if kill else None
    with flights_report.Progress(file, f"{workers} workers", quiet) as progress:
        result = flights_failure.run_with_page(program, workers, AHEAD, progress, failure, say, _prepare_reference)
    if not quiet:
        flights_report.show(flights_check.Findings.of(result), file, result)
    if failure is None:
        return verdicts(result, None, file)
    if failure.recovery is None or failure.recovery.restored is None:
        raise FalkirkError("the run was over before a worker could be killed: nothing is shown by that; run it again")
    if not quiet:
        flights_report.show_recovery(failure.recovery, flights_failure.policies(program), workers)
    with flights_report.Progress(file, "undisturbed", quiet) as progress:
        reference = falkirk.run(program, 1, AHEAD, on_stats=progress)
    return verdicts(result, reference, file)


def verdicts(result: Result, reference: Result | None, file: Path) -> int:
    """Compare what came out with other means' findings, and with the `reference`, if any; the exit code."""
    found = flights_check.Findings.of(result)
    wrong = flights_check.compare(found, file)
    flights_report.verdict(wrong, flights_report.right(found), "what Polars and networkx find")
    if reference is not None:
        other = flights_check.differences(result, reference)
        flights_report.verdict(other, flights_report.equal(result), "the run without a failure")
        wrong = wrong + other
    return int(bool(wrong))


def _prepare_reference() -> None:
    """Begin to start the Spark of the run without a failure, which is in this process, while the other run goes on."""
    host_of(flights.SPARK).warm()


def _halfway(file: Path) -> int:
    """The hour before which half of the hours are that have flights."""
    hours = pl.read_parquet(file, columns=["hour"])["hour"].unique().sort()
    return int(hours[len(hours) // 2])


if __name__ == "__main__":
    sys.exit(main())
