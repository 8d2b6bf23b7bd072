"""The demo's failure: a job with a store and a page, one of whose workers is killed halfway, and what became of it."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from falkirk.what_if_view import predict
from monitor.explain.why import plain_bound
from recovery.store.address import StoreAddress
from runtime.control import Stats
from runtime.page.address import open_page
from runtime.page.recorded import RecordedJob
from runtime.program import Program
from runtime.session.job import OnStats, Result
from runtime.sources.limits import Limits
from runtime.supervisor.supervisor import Job
from timely.errors import FalkirkError

Say = Callable[[str], None]

Bounds = dict[tuple[str, int], tuple[int, ...] | None]
"""For each region and worker where its work goes on after a failure: the least of its operators' rollback frontiers, as on the
page; None where all operators keep what they have."""


@dataclass(slots=True)
class Recovery:
    """The consequences of a kill."""

    victim: int
    reached: int
    """The oldest epoch that was not complete everywhere."""
    killed: float
    predicted: Bounds | None
    """The forecast of the monitor just before; None if the job was too busy to answer."""
    decided: Bounds | None = None
    """The decision of the monitor when it had happened."""
    restored: float | None = None
    """Seconds from the kill until every worker had restored what was decided, and worked again."""
    caught_up: float | None = None
    """Seconds from the kill until the job was as far as before."""


class Failure:
    """Kills worker `victim` with SIGKILL when all before epoch `at` is complete, and watches what comes of it."""

    def __init__(self, at: int, victim: int, say: Say) -> None:
        self.recovery: Recovery | None = None
        self._at = at
        self._victim = victim
        self._say = say
        self._striking: threading.Thread | None = None

    def watch(self, job: Job, store: str, stats: Mapping[int, Stats]) -> None:
        """Called several times a second with how far each worker is."""
        reached = _reached(stats)
        recovery = self.recovery
        if recovery is None:
            if self._striking is None and reached is not None and reached >= self._at:
                self._striking = threading.Thread(target=self._strike, args=(job, store), daemon=True)
                self._striking.start()
        elif recovery.restored is None or recovery.caught_up is not None:
            return
        elif reached is None or reached >= recovery.reached:
            recovery.caught_up = time.monotonic() - recovery.killed

    def hear(self, kind: str, at: float, data: dict[str, Any]) -> None:
        """An event of the job's timeline."""
        recovery = self.recovery
        if kind == "restored" and recovery is not None and recovery.restored is None:
            recovery.restored = time.monotonic() - recovery.killed
            self._say(
                f"[bold green]Recovered[/] after {recovery.restored:.1f} s: another process is worker {self._victim} now, and "
                "each operator has gone back only as far as it must."
            )

    def _strike(self, job: Job, store: str) -> None:
        """On a thread of its own, for the job goes on while it is asked what the kill would cost."""
        predicted = None
        try:
            answer = predict(store, [f"worker:{self._victim}"])
        except FalkirkError as error:
            self._say(f"falkirk whatif: {error}")
        else:
            regions = [operator["region"] for operator in answer.operators]
            predicted = _by_region(
                (regions[each["operator"]], each["worker"], None if each["keeps"] else each["to"])
                for each in answer.answer["processors"]
            )
            redone = answer.answer["redone"] or {"records": 0, "epochs": 0, "seconds": 0.0}
            self._say(
                f"falkirk whatif: if worker {self._victim} failed now, {redone['records']:,} records in {redone['epochs']:,} "
                f"epochs would be done again at most, {redone['seconds']:.1f} s of work."
            )
        pid = job.pids[self._victim]
        self.recovery = Recovery(self._victim, _reached(job.stats) or 0, time.monotonic(), predicted)
        os.kill(pid, signal.SIGKILL)
        self._say(f"[bold red]kill -9 {pid}[/]: that was worker {self._victim}.")


def run_with_page(
    program: Program,
    workers: int,
    limits: Limits,
    on_stats: OnStats,
    failure: Failure | None,
    say: Say,
    caught_up: Callable[[], None],
) -> Result:
    """Run `program` with a page and a store, which is temporary, and with `failure`; `caught_up` is called once when it is."""
    with tempfile.TemporaryDirectory(prefix="falkirk-demo-") as store, closing(open_page("flights")) as page:
        say(f"While it runs, its page is at [bold]{page.url}[/]")
        hear = failure.hear if failure is not None else None
        job = Job(program, workers, store, limits, hear, say, page=page)

        behind = True

        def watch(stats: Mapping[int, Stats]) -> None:
            nonlocal behind
            on_stats(stats)
            if failure is None:
                return
            failure.watch(job, store, stats)
            if behind and failure.recovery is not None and failure.recovery.caught_up is not None:
                behind = False
                caught_up()

        result = job.run(watch)
        if failure is not None and failure.recovery is not None:
            failure.recovery.decided = _decided(store)
        return result


def policies(program: Program) -> dict[str, str]:
    """The regions of a program in order, each with its policy as it is written there."""
    regions = [node.region for node in program.build().graph.nodes if node.region is not None]
    return {region.name: repr(region.policy).replace(", log_outputs=False", "") for region in regions}


def _reached(stats: Mapping[int, Stats]) -> int | None:
    """The oldest epoch that is not complete everywhere; None if nobody is at work."""
    return min((each.epoch for each in stats.values() if each.epoch is not None), default=None)


def _decided(store: str) -> Bounds | None:
    """The last decision in the monitor's journal."""
    with StoreAddress.of(store).open() as opened:
        recorded = RecordedJob(opened)
    if recorded.saved.decision is None:
        return None
    return _by_region(
        (info.region, worker, None if bound is None else plain_bound(bound))
        for worker, bounds in enumerate(recorded.saved.decision.bounds)
        for info, bound in zip(recorded.layout.processors, bounds)
    )


def _by_region(processors: Iterable[tuple[str | None, int, list[int] | None]]) -> Bounds:
    """The least of each region and worker; -1 stands for the end, after all others."""
    found: Bounds = {}
    for region, worker, bound in processors:
        place = region or "", worker
        before = found.setdefault(place, None)
        if bound is not None and (before is None or _order(bound) < _order(before)):
            found[place] = (*bound,)
    return found


def _order(bound: Iterable[int]) -> list[float]:
    return [float("inf") if at == -1 else at for at in bound]
