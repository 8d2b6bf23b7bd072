"""Standalone monitor: `falkirk monitor STORE`, for jobs one after the other.

It listens at a unix socket, in the folder of the store on this host unless another place is given: only processes of the same
user on the same host get through. A job hands it the socket to which its workers connect, so to them it is like any other
monitor.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recovery.store.address import StoreAddress, Where
from recovery.store.identity import store_id
from runtime.control import TO_CHILD, Control, Over, ToChild, Watch
from runtime.folders.store_folder import StoreFolder
from runtime.processes.greeting import GREETING_SECONDS
from runtime.processes.heartbeat import Heartbeat, SupervisorChannel
from runtime.processes.monitor import MonitorProcess
from timely.errors import FalkirkError, ProtocolError
from timely.io.acceptor import Acceptor
from timely.io.waiting import wait_readable


class NoMonitor(FalkirkError):
    """No answer at the address of a monitor."""


def socket_of(place: Where) -> str:
    """Path of a monitor's socket: `place` itself, or that of the monitor of a store."""
    if isinstance(place, StoreAddress) or "://" in os.fspath(place) or Path(place).is_dir():
        return str(StoreFolder(StoreAddress.of(place)).monitor)
    return str(Path(place).absolute())


def connect(address: str) -> tuple[socket.socket, int]:
    """Connection to the monitor at `address`, and its process id (0: unknown).

    Raises NoMonitor.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(address)
        return sock, _process_of(sock)
    except OSError as error:
        sock.close()
        why = error.strerror or error if os.path.exists(address) else "there is no such socket, and no store with one"
        raise NoMonitor(
            f"no monitor answers at {address} ({why}); start it with falkirk monitor and the store"
        ) from error


def serve(store: Where, place: str | None = None, on_note: Callable[[str], None] = lambda text: None) -> None:
    """Run the monitor of a store for all its jobs, until killed.

    Args:
        store: its address; it is made if it is missing.
        place: the path of the socket to listen at; None: in the folder of the store on this host.
        on_note: called with what happens, in words.

    Raises:
        FalkirkError: if another monitor listens there, or nobody can; StoreError if the store cannot be opened.
    """
    address = StoreAddress.of(store)
    with address.open(make=True) as opened:
        store_id(opened)  # of a folder with other files nothing is touched
        note = opened.make_private()
        if note is not None:
            on_note(note)
    folder = StoreFolder(address)
    folder.make()
    with _listening(place or str(folder.monitor)) as listener:
        on_note(f"the monitor of {address} listens at {listener.getsockname()}")
        acceptor = Acceptor(listener)
        while True:
            wait_readable([listener.fileno()])
            found = acceptor.accept()
            if found is None:
                continue
            with found[0] as sock:
                try:
                    _process_of(sock)
                    _watch_over(sock, folder, on_note)
                except OSError:
                    pass  # a job that has given up this connection by now
                except Exception as error:  # of one connection: the next may be better
                    on_note(f"what connected is no job as it should be: {type(error).__name__}: {error}")


def _watch_over(sock: socket.socket, folder: StoreFolder, on_note: Callable[[str], None]) -> None:
    """Run the monitor of the job behind a connection, until that is closed."""
    control: Control[ToChild] = Control(sock, TO_CHILD)
    voice = SupervisorChannel(sock)
    try:
        from_parent = _first_words(control)
    except ProtocolError:  # it is no job
        return
    if not from_parent or not isinstance(watch := from_parent[0], Watch):
        return
    with control.files(1)[0] as listener:
        if not folder.is_of(watch.store):
            voice.tell(
                Over(f"the monitor that was asked watches the store {folder.address}, and the job uses {watch.store}")
            )
            control.read(wait=True)
            return
        Heartbeat(voice, watch.beat_seconds)
        try:
            process = MonitorProcess(control, voice, listener, watch)
            on_note(f"a job with {process.layout.workers} worker(s) has connected")
            try:
                process.run(from_parent[1:])
            finally:
                process.close()
        except FalkirkError as error:
            voice.confess(error)
            on_note(f"{error}")
        except Exception as error:  # the job asks again, and finds a monitor that has read its journal anew
            voice.confess(error)
            on_note(f"the monitor failed, and begins anew: {type(error).__name__}: {error}")
    on_note("the job has gone")


def _first_words(control: Control[ToChild]) -> list[ToChild]:
    """First messages of a job; empty if none come in time.

    Other jobs wait for their turn.
    """
    deadline = time.monotonic() + GREETING_SECONDS
    from_parent: list[ToChild] = []
    while not from_parent and not control.ended and time.monotonic() < deadline:
        wait_readable([control.sock.fileno()], max(0.0, deadline - time.monotonic()))
        from_parent = control.read()
    return from_parent


@contextmanager
def _listening(address: str) -> Iterator[socket.socket]:
    """Context with a listening socket at `address`, locked by this process."""
    try:
        lock = os.open(f"{address}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FalkirkError(f"the monitor cannot listen at {address}: {error.strerror}; choose another place") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FalkirkError(
                f"another monitor listens at {address} already; end it, or choose another place"
            ) from None
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            with suppress(FileNotFoundError):
                os.unlink(address)  # of one that was killed
            before = os.umask(0o177)
            try:
                listener.bind(address)
            except OSError as error:
                raise FalkirkError(
                    f"the monitor cannot listen at {address}: {error.strerror or error}; choose another place, with a path of "
                    "less than 100 characters"
                ) from error
            finally:
                os.umask(before)
            listener.listen()
            try:
                yield listener
            finally:
                with suppress(OSError):
                    os.unlink(address)
    finally:
        os.close(lock)


def _process_of(sock: socket.socket) -> int:
    """Process id of the other end.

    Raises PermissionError if it is another user's.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0  # the permissions of the socket have to do
    process, user, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    if user != os.getuid():
        raise PermissionError(f"process {process} there is another user's")
    return int(process)
