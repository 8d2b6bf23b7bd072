"""Recovery in a worker process: opens the journal and the monitor connection."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from monitor.coordination.supervision import Note
from recovery.agent.agent import Agent
from recovery.checkpoint.following import Taken
from recovery.layout import lay_out
from recovery.store.reading import last_writer, take_over
from runtime.control import Begin, Control, Follow, FromChild, ToChild
from runtime.processes.mate import Mate
from runtime.processes.monitor_link import SocketMonitorLink
from runtime.processes.task import StoreTask
from runtime.recovery.driver import RecoveryDriver
from runtime.recovery.mate_link import SocketMateLink
from runtime.recovery.store_client import ThreadedStore, opened_again
from runtime.session.session import Session
from runtime.sources.limits import Limits
from timely.data import kernels
from timely.dataflow.plan import Plan
from timely.worker.worker import Worker


class PreparedRecovery:
    """Recovery prepared in a process before its place is known."""

    def __init__(self, plan: Plan, where: StoreTask, limits: Limits) -> None:
        self._plan, self._where, self._limits = plan, where, limits
        self._layout = replace(lay_out(plan), number=where.layout)
        self._mate: Mate | None = None
        self.link = SocketMateLink()
        """Connection to the mate of this worker, if it has one."""

    def follow(
        self, follow: Follow, worker: socket.socket, sock: socket.socket | None, tell: Callable[[FromChild], None]
    ) -> None:
        """Follow a `worker` as its mate, until `sock` has something to read.

        For None only what was sent already is taken.
        """
        self._mate = Mate(self._plan, self._layout, self._where, follow, worker)
        self._mate.follow(None if sock is None else sock.fileno(), tell, kernels.warm)

    def open(
        self,
        begin: Begin,
        control: Control[ToChild],
        obey: Callable[[list[ToChild]], None],
        tell: Callable[[FromChild], None],
    ) -> tuple[Worker, Callable[[Session], RecoveryDriver]]:
        """Take over the journal of a place; returns its worker and a driver factory.

        What earlier incarnations left half done is removed. `obey` gets the supervisor's messages, before the worker
        acts on those the monitor has sent meanwhile. Raises StoreGone.
        """
        where = self._where
        owner = begin.place.journal(where.layout)
        assert owner is not None, f"{begin.place} has no journal to take over"
        store, _ = opened_again(where.address, where.id)
        self.link.note = lambda text: tell(Note(text))
        writer = last_writer(store, owner, where.id)
        journal, found, warnings = take_over(store, owner, where.id, begin.incarnation)
        for warning in warnings:
            tell(Note(warning))
        client = ThreadedStore(store)
        for name in found.leftovers:
            client.delete(name)
        monitor = SocketMonitorLink(where.monitor, lambda: obey(control.read()), (control.sock.fileno(),), where.token)
        of = self._plan, self._layout, begin.place, begin.incarnation
        taken = Taken({}, {}, []) if self._mate is None else self._mate.following.take_over(writer)
        limits = self._limits.bytes, where.patience, where.copies
        agent = Agent(*of, journal, found.read(taken.segments), *limits, held=taken.held)
        agent.checkpoints.ahead = taken.loaded
        return agent.worker, partial(
            RecoveryDriver,
            agent=agent,
            monitor=monitor,
            store=client,
            mate=self.link,
            say=lambda text: tell(Note(text)),
        )
