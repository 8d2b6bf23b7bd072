"""The thread that writes."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path

import pytest

from falkirk.simulate.disk import SimulatedDisk
from recovery.store.interface import AlreadyThere, Buffer, StoreError
from recovery.store.local import LocalStore
from runtime.store_writer import StoreWriter


class Held(SimulatedDisk):
    """Puts wait until they are let go, and their order is noted."""

    def __init__(self) -> None:
        super().__init__(random.Random(0), lambda: 0.0)
        self.go = threading.Event()
        self.calls: list[str] = []

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        assert self.go.wait(60)
        self.calls.append(f"put {name}")
        if name == "strange":
            raise ZeroDivisionError("by zero")
        super().put(name, parts)

    def delete(self, name: str) -> None:
        self.calls.append(f"delete {name}")
        if name == "stuck":
            raise StoreError("it will not go")
        super().delete(name)


def test_puts_and_deletes_happen_in_order_and_are_counted(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "store") as store:
        woken = threading.Event()
        writer = StoreWriter(store, woken.set)
        writer.put("a", [b"abc", memoryview(bytes(8)).cast("q")])
        assert woken.wait(60)
        writer.delete("a")
        writer.put("a", [b"again"])
        assert writer.flush(60)
        assert writer.idle
        assert writer.take_done() == [("a", None), ("a", None)]
        assert writer.take_done() == []
        assert (writer.puts, writer.bytes, writer.deletes) == (2, 16, 1)
        assert writer.seconds > 0
        assert writer.close(60)
        assert bytes(store.get("a")) == b"again"


def test_the_caller_goes_on_while_a_put_is_under_way() -> None:
    store = Held()
    writer = StoreWriter(store)
    for name in ("a", "b"):
        writer.put(name, [b""])
    writer.delete("a")
    assert not writer.idle
    assert not writer.flush(0.01)
    assert writer.take_done() == []
    store.go.set()
    assert writer.flush(60)
    assert store.calls == ["put a", "put b", "delete a"]
    assert writer.take_done() == [("a", None), ("b", None)]


def test_errors_are_handed_back_and_end_nothing() -> None:
    store = Held()
    store.go.set()
    writer = StoreWriter(store)
    for name in ("a", "a", "strange"):
        writer.put(name, [b""])
    writer.delete("stuck")
    writer.delete("fine")
    writer.put("b", [b""])
    assert writer.flush(60)
    done = writer.take_done()
    assert [name for name, _ in done] == ["a", "a", "strange", "stuck", "b"]
    errors = [error for _, error in done]
    assert errors[0] is None
    assert isinstance(errors[1], AlreadyThere)
    assert isinstance(errors[2], StoreError)
    assert "ZeroDivisionError: by zero" in str(errors[2])
    assert str(errors[3]) == "it will not go"
    assert errors[4] is None
    assert writer.puts == 2


def test_closing_writes_what_waits_unless_that_takes_too_long() -> None:
    store = Held()
    writer = StoreWriter(store)
    writer.put("a", [b""])
    writer.put("never", [b""])
    assert not writer.close(0.01)
    with pytest.raises(StoreError, match="was closed"):
        writer.put("b", [b""])
    store.go.set()
    assert writer.flush(60)
    assert store.calls == ["put a"]


class Buffers(bytearray):
    """Bytes of which one can tell whether they are still kept alive."""


def test_what_was_written_is_not_kept_alive(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "store") as store:
        writer = StoreWriter(store)
        buffer = Buffers(b"abc")
        kept = weakref.ref(buffer)
        writer.put("a", [buffer])
        del buffer
        assert writer.flush(60)
        assert kept() is None
        writer.close()
