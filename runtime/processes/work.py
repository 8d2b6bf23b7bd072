"""The work of a worker with recovery, from its beginning to the end of the job, however its process was started."""

from __future__ import annotations

import time
from collections.abc import Callable

from recovery.store.journal import Journal
from recovery.store.local import LocalStore
from recovery.store.reading import Survey, take_over
from runtime.control import CapturedBatch
from runtime.job import STATS_SECONDS, session_stats
from runtime.job_control import FromChild, Warned
from runtime.processes.heartbeat import Heartbeat
from runtime.session import Session
from runtime.store_client import ThreadedStore
from timely.data.batch import Batch
from timely.data.codec import encode_batch
from timely.dataflow.plan import Plan
from timely.errors import CodecError
from timely.io.waiting import wait_readable
from timely.time import Time


def open_journal(
    store: LocalStore, identity: bytes, index: int, incarnation: int, tell: Callable[[FromChild], None]
) -> tuple[Journal, Survey, ThreadedStore]:
    """Take over what earlier incarnations of worker `index` wrote, and remove what they left half done."""
    journal, found, warnings = take_over(store, f"worker-{index:03d}", identity, incarnation)
    for warning in warnings:
        tell(Warned(warning))
    client = ThreadedStore(store)
    for name in found.leftovers:
        client.delete(name)
    return journal, found, client


def work(
    session: Session,
    heartbeat: Heartbeat,
    ended: Callable[[], bool],
    files: Callable[[], list[int]],
    tell: Callable[[FromChild], None],
) -> None:
    """Work until `ended` says that the job is over. `files` are what to wait for when there is nothing more to do."""
    due = time.monotonic() + STATS_SECONDS
    while not ended():
        heartbeat.turn()
        session.step(STATS_SECONDS)
        if session.done and not ended():  # until all others are, too: it may be needed again
            wait_readable(files(), STATS_SECONDS)
        if (now := time.monotonic()) >= due:
            due = now + STATS_SECONDS
            tell(session_stats(session))


def capturing(plan: Plan, tell: Callable[[FromChild], None]) -> Callable[[int, Time, Batch], None]:
    """Hands captured batches over to whoever runs the job."""

    def captured(node: int, at: Time, batch: Batch) -> None:
        try:
            header, payload = encode_batch(batch)
        except CodecError as error:
            where = plan.graph.nodes[node]
            raise CodecError(f"capture {where.name!r} ({where.site}): {error}") from error
        tell(CapturedBatch(node, at, header, b"".join(payload)))

    return captured
