"""The store in a bucket, against a real server."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from recovery.store import objects
from recovery.store.address import StoreAddress
from recovery.store.interface import AlreadyThere, NoStore, StoreBusy, StoreError, StoreGone
from recovery.store.objects import ObjectStore
from tests.support.buckets import SECRET, Proxy, serving, use


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with serving() as port:
        yield port


@pytest.fixture
def proxy(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    proxy = Proxy(server)
    use(proxy.port, monkeypatch)
    yield proxy
    proxy.close()


@pytest.fixture
def address(request: pytest.FixtureRequest) -> StoreAddress:
    return StoreAddress.of(f"s3://jobs/{request.node.name}")


def opened(address: StoreAddress) -> ObjectStore:
    store = address.open(make=True)
    assert isinstance(store, ObjectStore)
    return store


def test_of_many_writers_one_succeeds(proxy: Proxy, address: StoreAddress) -> None:
    with opened(address) as first, opened(address) as second:
        for number in range(50):
            won: list[int] = []
            together = threading.Barrier(2)

            def write(
                store: ObjectStore,
                me: int,
                number: int = number,
                won: list[int] = won,
                together: threading.Barrier = together,
            ) -> None:
                together.wait()
                try:
                    store.put(f"w/{number}", [b"the same"])
                    won.append(me)
                except AlreadyThere:
                    pass

            both = [threading.Thread(target=write, args=each) for each in ((first, 1), (second, 2))]
            for each in both:
                each.start()
            for each in both:
                each.join()
            assert len(won) == 1


def test_a_put_whose_answer_was_lost_is_known_as_its_own(proxy: Proxy, address: StoreAddress) -> None:
    with opened(address) as store:
        store.put("first", [b"warm"])
        proxy.swallow = 1
        before = proxy.calls["PUT"]
        store.put("w/a", [b"mine"])
        assert proxy.calls["PUT"] == before + 2
        assert bytes(store.get("w/a")) == b"mine"
        with pytest.raises(AlreadyThere):
            store.put("w/a", [b"mine"])


def test_it_waits_for_a_store_that_is_away(
    proxy: Proxy, address: StoreAddress, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(objects, "FIRST_NOTE", 0.2)
    with opened(address) as store:
        store.put("a", [b"a"])
        proxy.go_away()
        back = threading.Timer(1.0, proxy.come_back)
        back.start()
        store.put("b", [b"b"])
        assert not proxy.away
        assert bytes(store.get("b")) == b"b"
    said = capfd.readouterr().err
    assert f"the store {address} does not answer for" in said
    assert "answers again" in said
    assert SECRET not in said


def test_it_gives_up_in_words_without_secrets(
    proxy: Proxy, address: StoreAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "PATIENCE", 0.3)
    with opened(address) as store:
        proxy.go_away()
        with pytest.raises(StoreError, match=r"was tried again for .* see that its service can be reached") as failed:
            store.put("a", [b"a"])
        assert failed.value.__cause__ is None
        assert SECRET not in str(failed.value)


def test_lists_that_lag_are_mended(proxy: Proxy, address: StoreAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(address) as store:
        for number in range(4):
            store.put(f"w/segment-{number:08}", [b"x"])
        whole = store._listed("w/")
        store.delete("w/segment-00000001")
        right = [f"w/segment-{number:08}" for number in (0, 2, 3)]
        assert store.names("w/") == right
        monkeypatch.setattr(store, "_listed", lambda prefix: {"w/segment-00000000": 1})
        assert store.names("w/")[-1] == right[-1]
        monkeypatch.setattr(store, "_listed", lambda prefix: {})
        assert store.names("w/")[-1] == right[-1]
        monkeypatch.setattr(store, "_listed", lambda prefix: {**whole, "w/segment-00000004": 1})
        assert store.names("w/")[-1] == right[-1]


def test_deletes_leave_together(proxy: Proxy, address: StoreAddress) -> None:
    with opened(address) as store:
        for number in range(20):
            store.put(f"w/{number}", [b"x"])
        proxy.delay = 0.1
        proxy.calls.clear()
        for number in range(20):
            store.delete(f"w/{number}")
        assert store.names("w/") == []
        assert proxy.calls["POST"] + proxy.calls["DELETE"] <= 3


def test_one_job_has_the_lock(proxy: Proxy, address: StoreAddress) -> None:
    with opened(address) as store, opened(address) as other:
        assert store.last_user() is None
        with store.lock(), pytest.raises(StoreBusy, match="is using the store s3://jobs/"), other.lock():
            pass
        with other.lock():
            assert other.last_user() == store.last_user() is not None


def test_the_lock_of_a_killed_process_is_free(proxy: Proxy, address: StoreAddress) -> None:
    program = (
        "import os, sys, recovery.store\n"
        "with recovery.store.open(sys.argv[1], make=True) as store, store.lock(): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program, address.url]).returncode == -9
    with opened(address) as store, store.lock():
        pass


def test_the_lock_of_another_host_expires(proxy: Proxy, address: StoreAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "BEAT", 0.1)
    monkeypatch.setattr(objects, "EXPIRY", 1.0)
    monkeypatch.setattr("recovery.store.lease._system", lambda: "")  # nobody can see whether the holder lives
    with opened(address) as store, opened(address) as other, store.lock():
        with pytest.raises(StoreBusy), other.lock():
            pass
        monkeypatch.setattr(store, "_write_lock", lambda *_: time.sleep(3))  # it hangs
        time.sleep(0.5)
        with other.lock():
            pass


def test_what_is_not_there_is_named(proxy: Proxy, address: StoreAddress) -> None:
    with pytest.raises(NoStore, match="there is no store s3://jobs/"):
        address.open()
    with pytest.raises(StoreGone, match="there is no such bucket"):
        StoreAddress.of("s3://other/jobs").open(make=True).put("a", [b"a"])


def test_credentials_in_an_address_are_refused(proxy: Proxy) -> None:
    with pytest.raises(StoreError, match="credentials by the environment") as failed:
        StoreAddress.of(f"s3://user:{SECRET}@jobs/a").open(make=True)
    assert SECRET not in str(failed.value)
