"""Mate of a worker: a process with its newest durable state, to take its place."""

from __future__ import annotations

import time
from collections.abc import Callable

from recovery.checkpoint.following import Following
from recovery.layout import Layout
from recovery.metadata import NEVER
from recovery.place import journal_of
from runtime.control import CaughtUp, Follow, Followed, FromChild
from runtime.processes.task import MUCH, StoreTask
from runtime.recovery.process_use import resident
from runtime.recovery.store_client import opened_again
from timely.dataflow.plan import Plan
from timely.io.waiting import wait_readable

_LOOK_SECONDS = 0.1
"""Seconds between two looks at the journal."""

_TELL_SECONDS = 1.0
"""Seconds between two reports."""


class Mate:
    """Follower of a worker's journal, in a process waiting to take over.

    Nothing is written: the journal stays that of the worker.
    """

    def __init__(self, plan: Plan, layout: Layout, where: StoreTask, follow: Follow) -> None:
        self.place = follow.place
        store, _ = opened_again(where.address, where.id)
        worker = self.place.worker
        self.following = Following(plan, layout, worker, store, journal_of(worker, layout.number), where.id)

    def follow(self, file: int, tell: Callable[[FromChild], None], warm: Callable[[], None]) -> None:
        """Follow until `file` is readable; call `warm` before much is loaded.

        Raises as `Following.turn`.
        """
        following, began = self.following, time.monotonic()
        warmed = told = False
        busy, due = True, began
        last: Followed | None = None
        while not wait_readable([file], 0.0 if busy else _LOOK_SECONDS):
            if not warmed and not following.caught_up and following.size > MUCH:
                warmed = True
                warm()
            busy = following.turn()
            if not told and following.segments and following.caught_up:
                told = True
                tell(CaughtUp(self.place, time.monotonic() - began))
                due = 0.0
            if (now := time.monotonic()) >= due:
                due = now + _TELL_SECONDS
                report = self._report()
                if report != last:
                    tell(report)
                    last = report

    def _report(self) -> Followed:
        progress = self.following.progress
        epoch = None if progress.loaded is None else progress.loaded[0]
        shown = -1 if epoch is not None and epoch >= NEVER else epoch
        return Followed(self.place, resident(), shown, progress.behind, progress.left)
