"""The thread that writes to a store."""

from __future__ import annotations

import random
import select
import threading
import weakref
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from falkirk.simulate.disk import SimulatedDisk
from recovery.store.interface import AlreadyThere, Buffer, StoreError
from recovery.store.local import LocalStore
from runtime.recovery.store_client import ThreadedStore


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
        if name == "odd":
            raise ZeroDivisionError("by zero")
        super().delete(name)


def wait_for(client: ThreadedStore, puts: int) -> list[tuple[str, Exception | None]]:
    """The outcome of the next `puts`, as a worker waits for it."""
    done: list[tuple[str, Exception | None]] = []
    while len(done) < puts:
        assert select.select(client.files(), [], [], 60)[0]
        done += client.take_done()
    return done


def test_puts_and_deletes_happen_in_order(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "store") as store, closing(ThreadedStore(store)) as client:
        client.put("a", [b"abc", memoryview(bytes(8)).cast("q")])
        client.delete("a")
        client.put("a", [b"again"])
        assert wait_for(client, 2) == [("a", None), ("a", None)]
        assert client.take_done() == []
        assert bytes(store.get("a")) == b"again"


def test_the_caller_goes_on_while_a_put_is_under_way() -> None:
    store = Held()
    with closing(ThreadedStore(store)) as client:
        for name in ("a", "b"):
            client.put(name, [b""])
        client.delete("a")
        assert store.calls == []
        assert client.take_done() == []
        store.go.set()
        assert wait_for(client, 2) == [("a", None), ("b", None)]
    assert store.calls == ["put a", "put b", "delete a"]


def test_errors_of_puts_are_handed_back_and_none_ends_anything() -> None:
    store = Held()
    store.go.set()
    with closing(ThreadedStore(store)) as client:
        for name in ("a", "a", "strange"):
            client.put(name, [b""])
        for name in ("stuck", "odd", "fine"):
            client.delete(name)
        client.put("b", [b""])
        done = wait_for(client, 4)
    assert [name for name, _ in done] == ["a", "a", "strange", "b"]
    errors = [error for _, error in done]
    assert errors[0] is None
    assert isinstance(errors[1], AlreadyThere)
    assert isinstance(errors[2], StoreError)
    assert "ZeroDivisionError: by zero" in str(errors[2])
    assert errors[3] is None


def test_closing_writes_what_waits_and_nothing_more() -> None:
    store = Held()
    client = ThreadedStore(store)
    client.put("a", [b""])
    client.put("b", [b""])
    ending = threading.Thread(target=client.close)
    ending.start()

    def delete_for_ever() -> None:
        while True:
            client.delete("none")

    with pytest.raises(StoreError, match="was closed"):
        delete_for_ever()
    store.go.set()
    ending.join(60)
    assert not ending.is_alive()
    assert store.calls[:2] == ["put a", "put b"]
    client.close()


class Buffers(bytearray):
    """Bytes of which one can tell whether they are still kept alive."""


def test_what_was_written_is_not_kept_alive(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "store") as store, closing(ThreadedStore(store)) as client:
        buffer = Buffers(b"abc")
        kept = weakref.ref(buffer)
        client.put("a", [buffer])
        del buffer
        wait_for(client, 1)
        assert kept() is None
