"""Addresses of stores: what they mean, what they show, and what is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from rich.pretty import pretty_repr

import recovery.store
from recovery.store.address import StoreAddress
from recovery.store.interface import NoStore, StoreBusy, StoreError, StoreUnwritable
from tests.support.stores import beside, installed


def test_paths_and_urls_of_a_folder_are_one_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "a store, 100%? #1 é"
    whole = StoreAddress.of(folder)
    assert whole == StoreAddress.of(str(folder)) == StoreAddress.of(folder.name) == StoreAddress.of(folder.as_uri())
    assert whole == StoreAddress.of(folder.as_uri().replace("file://", "FILE://localhost")) == StoreAddress.of(whole)
    assert (whole.scheme, whole.local, str(whole)) == ("file", folder, str(folder))
    assert len({whole, StoreAddress.of(folder)}) == 1


def test_an_address_travels(tmp_path: Path) -> None:
    address = StoreAddress.of(tmp_path / "store")
    data = msgspec.msgpack.encode(address)
    assert msgspec.msgpack.decode(data, type=StoreAddress) == address
    with pytest.raises(AttributeError):
        address.url = "other"  # type: ignore[misc]


def test_it_shows_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch)
    secret = StoreAddress.of("elsewhere://user:SECRET@host:9/a/b?token=SECRET#SECRET")
    console = Console(width=200, record=True)
    console.print(secret)
    for shown in (str(secret), repr(secret), f"{secret}", f"{secret!r}", pretty_repr(secret), console.export_text()):
        assert "elsewhere://host:9/a/b" in shown
        assert "SECRET" not in shown
    assert "SECRET" not in str(secret.local)
    assert secret.local == StoreAddress.of("elsewhere://host:9/a/b").local
    assert secret.local != StoreAddress.of("elsewhere://host:9/a/c").local
    assert not secret.local_is_shared


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            "ftp://host/jobs",
            r"no kind of store with addresses ftp://; there are az://, elsewhere://, file://, gs://, s3:// and paths of",
        ),
        ("hdfs://user:SECRET@host/x", "no kind of store with addresses hdfs://"),
        (
            "file://user:SECRET@other/jobs",
            r"file://other/jobs is no address of a folder of this host: give file:///path",
        ),
        ("file:///jobs?x=SECRET", r"file:///jobs is no address of a folder"),
        ("file:///jobs#x", "with . and # as %3F and %23"),
        ("file://jobs", "is no address of a folder of this host"),
    ],
)
def test_what_is_no_address_is_refused(wrong: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch)
    with pytest.raises(StoreError, match=says) as raised:
        StoreAddress.of(wrong)
    assert "SECRET" not in str(raised.value)


def test_a_kind_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, "no_such_module:opened")
    with pytest.raises(StoreError, match=r"elsewhere:// cannot be used here: no_such_module:opened cannot be loaded"):
        StoreAddress.of("elsewhere://host/a")


def test_only_who_makes_a_store_makes_it(tmp_path: Path) -> None:
    address = StoreAddress.of(tmp_path / "store")
    with pytest.raises(NoStore, match=r"there is no store .*store$"):
        address.open()
    assert not (tmp_path / "store").exists()
    with recovery.store.open(tmp_path / "store", make=True) as store, store.lock():
        user = store.last_user()
        with address.open() as other, pytest.raises(StoreBusy) as busy, other.lock():
            pass
    assert user is not None
    assert user[0] == busy.value.pid
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnwritable, match="is a file; a store needs a folder"):
        StoreAddress.of(tmp_path / "file").open()


def test_whose_lock_is_not_readable_is_not_nobodys(tmp_path: Path) -> None:
    with recovery.store.open(tmp_path, make=True) as store:
        assert store.last_user() is None
        (tmp_path / ".lock").write_text("nonsense")
        with pytest.raises(StoreError, match="does not say who uses the store"):
            store.last_user()


def test_a_folder_by_two_paths_is_one_store(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    assert beside(tmp_path / "store").is_of(StoreAddress.of(tmp_path / "link"))
    assert not beside(tmp_path / "store").is_of(StoreAddress.of(tmp_path))
