"""The thread that writes to a store, so that its worker goes on meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TypeAlias

from recovery.store.interface import Buffer, Store, StoreError
from recovery.store.segments import as_bytes

Done: TypeAlias = tuple[str, Exception | None]
"""The name of a blob, and None if it is durable now, or a `StoreError`: of a put that is over, or a deletion that failed."""


class StoreWriter:
    """Puts and deletes blobs in the order in which it is told to, one at a time, in a thread of its own.

    Args:
        wake: called from that thread whenever `take_done` has something new.

    An error ends nothing here: it is handed back, and what comes next is tried all the same.
    """

    def __init__(self, store: Store, wake: Callable[[], None] = lambda: None) -> None:
        self.puts = 0
        self.bytes = 0
        self.deletes = 0
        self.seconds = 0.0
        """Time spent in the store, for all operations."""
        self._store = store
        self._wake = wake
        self._changed = threading.Condition()
        self._waiting: deque[tuple[str, Sequence[Buffer] | None]] = deque()
        self._busy = False
        self._closed = False
        self._done: list[Done] = []
        self._thread = threading.Thread(target=self._run, name="falkirk-store", daemon=True)
        self._thread.start()

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        """Write a blob; its buffers must not change until `take_done` hands back its name."""
        self._enqueue(name, parts)

    def delete(self, name: str) -> None:
        """Remove a blob. Only a failure is handed back."""
        self._enqueue(name, None)

    def take_done(self) -> list[Done]:
        """The writes that are over since the last call, in order."""
        with self._changed:
            done, self._done = self._done, []
        return done

    @property
    def idle(self) -> bool:
        """True if nothing waits and nothing is under way. There may be something for `take_done`."""
        with self._changed:
            return not self._waiting and not self._busy

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all is over, at most `timeout` seconds; whether it is. Results are still handed out by `take_done`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, timeout)

    def close(self, timeout: float | None = None) -> bool:
        """Do what was asked for, then end the thread; whether that took no longer than `timeout` seconds.

        If it did, what waits is given up; a write that is under way goes on, until it or the process ends.
        """
        in_time = self.flush(timeout)
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        if in_time:
            self._thread.join()
        return in_time

    def _enqueue(self, name: str, parts: Sequence[Buffer] | None) -> None:
        with self._changed:
            if self._closed:
                raise StoreError(f"{name} cannot be written: the writer of the store was closed")
            self._waiting.append((name, parts))
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                name, parts = self._waiting.popleft()
                self._busy = True
            began = perf_counter()
            error = self._do(name, parts)
            with self._changed:
                self.seconds += perf_counter() - began
                if parts is None:
                    self.deletes += 1
                elif error is None:
                    self.puts += 1
                    self.bytes += sum(len(as_bytes(part)) for part in parts)
                told = parts is not None or error is not None
                if told:
                    self._done.append((name, error))
            parts = None  # what was written is not kept alive while there is nothing to do
            if told:
                self._wake()

    def _do(self, name: str, parts: Sequence[Buffer] | None) -> StoreError | None:
        try:
            if parts is None:
                self._store.delete(name)
            else:
                self._store.put(name, parts)
        except StoreError as error:
            return error
        except Exception as error:  # of a store that does not name its errors: the job must hear of it, not the thread
            failure = StoreError(f"{name}: the store failed with {type(error).__name__}: {error}")
            failure.__cause__ = error
            return failure
        return None
