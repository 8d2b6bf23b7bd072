"""True if a worker that joins belongs to this job, and its store to this store."""

from __future__ import annotations

from monitor.coordination.layouts import layout_changes
from monitor.coordination.records import KeptDecision
from recovery.layout import Layout
from recovery.protocol import Join
from timely.errors import ProtocolError


def refusal(join: Join, workers: int, layout: Layout | None, decision: KeptDecision | None) -> str | None:
    """Why the job cannot go on with this worker; None if it can.

    Args:
        join: what it says.
        workers: how many workers the job is run with now.
        layout: that of the job, once it is known.
        decision: the last one in the monitor's journal.
    """
    worker = join.worker
    try:
        changes = layout_changes(layout, join.layout) if layout is not None else []
    except ProtocolError as error:
        return f"worker {worker} cannot take part: {error}"
    if changes:
        lines = "\n  ".join(changes)
        return (
            f"worker {worker} runs another program than the one that the store, or another worker, knows:\n  {lines}\n"
            "Run the program as it was, or choose another store"
        )
    if join.layout.workers != workers:
        return (
            f"worker {worker} was started as one of {join.layout.workers} worker(s), and the monitor for {workers}: "
            "start all with the same number"
        )
    known, previous = (decision.generation, decision.previous) if decision else (0, 0)
    if join.generation > known:
        return (
            f"worker {worker} has applied decision {join.generation}, which the journal of the monitor does not have (its "
            f"last is {known}): the monitor's folder of the store is older than the worker's. Bring back the whole store "
            "as it was"
        )
    if join.generation not in (known, previous):
        return (
            f"the store of worker {worker} knows decisions up to {join.generation} only, and must know {previous}: it was "
            "lost, or is an older copy. Bring back the whole store as it was"
        )
    return None
