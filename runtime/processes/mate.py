"""Mate of a worker: a process with its newest durable state, to take its place."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from recovery.checkpoint.following import Following
from recovery.layout import Layout
from recovery.metadata import NEVER
from recovery.place import journal_of
from runtime.control import CaughtUp, Follow, Followed, FromChild
from runtime.processes.task import MUCH, StoreTask
from runtime.recovery.mate_link import MateEnd
from runtime.recovery.process_use import resident
from runtime.recovery.store_client import opened_again
from timely.dataflow.plan import Plan
from timely.errors import FalkirkError
from timely.io.waiting import wait_readable

_ALONE_SECONDS = 30.0
"""Longest time between the end of the connection to a worker and its replacement."""

_LOOK_SECONDS = 0.1
"""Seconds between two looks at the journal."""

_SOME = 1 << 18
"""Least bytes under passive standby, for a mate to load Numba."""

_TELL_SECONDS = 1.0
"""Seconds between two reports."""


class Mate:
    """Follower of a worker's journal, in a process waiting to take over.

    Nothing is written: the journal stays that of the worker.
    """

    def __init__(
        self, plan: Plan, layout: Layout, where: StoreTask, follow: Follow, sock: socket.socket | None = None
    ) -> None:
        self.place = follow.place
        store, _ = opened_again(where.address, where.id)
        worker = self.place.worker
        self.following = Following(plan, layout, worker, store, journal_of(worker, layout.number), where.id)
        self._much = MUCH if all(group.durable is None for group in layout.groups) else _SOME
        self._end = None if sock is None else MateEnd(sock, self.following)
        """Connection to the worker, for segments not durable yet."""

    def follow(self, file: int | None, tell: Callable[[FromChild], None], warm: Callable[[], None]) -> None:
        """Follow until `file` is readable; with much to load, call `warm` in a thread.

        For None only what was sent already is taken.

        Raises as `Following.turn` and `MateEnd.turn`, and FalkirkError where the worker gave it up.
        """
        following, began = self.following, time.monotonic()
        told = False
        warming: threading.Thread | None = None
        busy, due = True, began
        last: Followed | None = None
        files = [] if file is None else [file]
        while file is not None and file not in wait_readable(files, 0.0 if busy else _LOOK_SECONDS):
            if warming is None and not following.caught_up and following.size > self._much:
                # Beside the rest: it may take long, and the worker waits for answers. The first piece would load it, too.
                warming = threading.Thread(target=warm, name="falkirk-warm", daemon=True)
                warming.start()
            busy = self._hear()
            files = [file, *([] if self._end is None else self._end.files())]
            warm_enough = warming is None or not warming.is_alive()
            busy = following.turn(warm_enough) or busy
            if not told and warm_enough and following.segments and following.caught_up:
                told = True
                tell(CaughtUp(self.place, time.monotonic() - began))
                due = 0.0
            if (now := time.monotonic()) >= due:
                due = now + _TELL_SECONDS
                report = self._report()
                if report != last:
                    tell(report)
                    last = report
        if self._end is not None:
            self._end.drain()

    def _hear(self) -> bool:
        if self._end is None:
            return False
        ended = self._end.ended_at
        if ended is not None and time.monotonic() - ended > _ALONE_SECONDS:
            raise FalkirkError("its worker has given it up, as it was too slow")
        return self._end.turn()

    def _report(self) -> Followed:
        progress = self.following.progress
        epoch = None if progress.loaded is None else progress.loaded[0]
        shown = -1 if epoch is not None and epoch >= NEVER else epoch
        return Followed(self.place, resident(), shown, progress.behind, progress.left)
