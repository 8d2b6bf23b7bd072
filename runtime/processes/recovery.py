"""Recovery in a worker's process: opens the worker's journal in the store and its connection to the monitor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from recovery.layout import lay_out
from recovery.store.identity import store_id
from recovery.store.interface import StoreGone
from recovery.store.local import LocalStore
from recovery.store.reading import take_over
from runtime.control import Begin, Control, FromChild, ToChild, Warned
from runtime.inputs import Limits
from runtime.processes.monitor_link import SocketMonitorLink
from runtime.processes.worker import StoreTask
from runtime.recovery_driver import RecoveryDriver
from runtime.store_client import ThreadedStore
from timely.dataflow.plan import Plan


class PreparedRecovery:
    """Recovery in a process that may become any worker."""

    def __init__(self, plan: Plan, where: StoreTask, limits: Limits) -> None:
        self._plan, self._where, self._limits = plan, where, limits
        self._layout = lay_out(plan)

    def open(
        self,
        begin: Begin,
        control: Control[ToChild],
        obey: Callable[[list[ToChild]], None],
        tell: Callable[[FromChild], None],
    ) -> RecoveryDriver:
        """Take over what earlier incarnations of a worker wrote, and remove what they left half done.

        `obey` gets what the supervisor says, before the worker acts on what the monitor has said meanwhile. Raises StoreGone.
        """
        where = self._where
        if not Path(where.folder).is_dir():
            raise StoreGone(f"the store {where.folder} is gone; bring it back and run the job again")
        store = LocalStore(where.folder)
        if store_id(store) != where.id:
            raise StoreGone(
                f"the store {where.folder} was replaced by another one; bring it back and run the job again"
            )
        journal, found, warnings = take_over(store, f"worker-{begin.index:03d}", where.id, begin.incarnation)
        for warning in warnings:
            tell(Warned(warning))
        client = ThreadedStore(store)
        for name in found.leftovers:
            client.delete(name)
        monitor = SocketMonitorLink(where.monitor, lambda: obey(control.read()), (control.sock.fileno(),), where.token)
        return RecoveryDriver(
            self._plan,
            self._layout,
            begin.index,
            begin.incarnation,
            monitor,
            client,
            journal,
            found.read(),
            self._limits,
            say=lambda text: tell(Warned(text)),
            patience=where.patience,
        )
