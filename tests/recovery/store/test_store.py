"""Contract of `Store`, held by every kind of store that there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from falkirk.simulate.disk import SimulatedDisk
from recovery.store.address import StoreAddress
from recovery.store.identity import make_store_id, store_id
from recovery.store.interface import AlreadyThere, NotThere, Store, StoreError
from tests.support.buckets import serving, use
from tests.support.stores import installed

KINDS = ("folder", "file", "elsewhere", "simulated", "bucket")


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with serving() as port:
        yield port


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    if request.param == "simulated":
        yield SimulatedDisk(Random(1), lambda: 0.0)
        return
    installed(tmp_path, monkeypatch)
    if request.param == "bucket":
        use(request.getfixturevalue("server"), monkeypatch)
    url = {
        "bucket": f"s3://jobs/{request.node.name}",
        "folder": str(tmp_path / "store"),
        "file": (tmp_path / "a store").as_uri(),
        "elsewhere": f"elsewhere://user:secret@host{tmp_path}/store",
    }[request.param]
    with StoreAddress.of(url).open(make=True) as opened:
        yield opened


def test_a_blob_is_read_back_whole(store: Store) -> None:
    store.put("worker-000/a", [b"abc", b"", memoryview(b"xdefg")[1:], bytearray(b"h")])
    store.put("empty", [])
    found = store.get("worker-000/a")
    assert bytes(found) == b"abcdefgh"
    assert found.readonly
    assert bytes(store.get("empty")) == b""


def test_what_a_writer_changes_afterwards_changes_no_blob(store: Store) -> None:
    written = bytearray(b"before")
    store.put("a", [written])
    written[:] = b"after!"
    assert bytes(store.get("a")) == b"before"


def test_a_name_is_taken_until_it_is_deleted(store: Store) -> None:
    store.put("w/a", [b"first"])
    with pytest.raises(AlreadyThere, match="already has w/a"):
        store.put("w/a", [b"second"])
    assert bytes(store.get("w/a")) == b"first"
    store.delete("w/a")
    store.delete("w/a")
    store.delete("nowhere/a")
    with pytest.raises(NotThere, match="has no w/a"):
        store.get("w/a")
    store.put("w/a", [b"second"])
    assert bytes(store.get("w/a")) == b"second"


def test_names_and_sizes_are_found_by_prefix(store: Store) -> None:
    for name in ("worker-000/b", "worker-000/a", "worker-0001/a", "monitor/a", "store"):
        store.put(name, [name.encode()])
    assert store.names("worker-000/") == ["worker-000/a", "worker-000/b"]
    assert store.names("worker-000") == ["worker-000/a", "worker-000/b", "worker-0001/a"]
    assert store.names("") == ["monitor/a", "store", "worker-000/a", "worker-000/b", "worker-0001/a"]
    assert store.names("x") == []
    assert store.size("worker-000/") == 24
    assert store.size() == 24 + 13 + 9 + 5


def test_errors_are_those_of_stores(store: Store) -> None:
    with pytest.raises(StoreError):
        store.get("a")


def test_it_gets_one_id(store: Store) -> None:
    assert store_id(store) is None
    assert make_store_id(store, b"a" * 16) == b"a" * 16
    assert make_store_id(store, b"b" * 16) == store_id(store) == b"a" * 16
