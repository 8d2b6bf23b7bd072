"""Store in a bucket: Amazon S3 and compatible servers, Google Cloud, Azure.

A blob is one object, written by a put that fails if there is one of its name: who is first, stays. Each put carries a random
mark as metadata. A put whose answer was lost finds its own mark, and so knows that it succeeded.

A store that does not answer is tried again for `PATIENCE` seconds. Deletes are gathered by a thread and leave in batches.

Lists are not trusted: of each journal in a list, the newest segment is asked for by name, and so are those that would follow.

Errors of the library are never passed on: their texts may have signed addresses. Kinds and codes are.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import msgspec
import obstore
from obstore import exceptions
from obstore.store import from_url

from recovery.store.interface import (
    AlreadyThere,
    Buffer,
    NoStore,
    NotThere,
    StoreBusy,
    StoreError,
    StoreGone,
    StoreUnwritable,
    check_name,
    is_name,
)
from recovery.store.lease import Holder, read_holder
from recovery.store.memory import aligned_memory
from recovery.store.segments import as_bytes, segment_name, segment_number

PATIENCE = 180.0
"""Longest time of trying an operation again, in seconds."""
FIRST_NOTE = 10.0
"""Seconds without an answer until the user is notified."""
BEAT = 3.0
"""Seconds between two renewals of the lock."""
EXPIRY = 20.0
"""Seconds without a renewal until the lock of another host is taken."""
AHEAD = 4
"""Segments asked for by name behind the newest of a list."""

_LOCK = ".lock"
_MARK = "falkirk-mark"
_BACK_OFF = (0.1, 3.0)
_BATCH = 500
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_STATUS = re.compile(r"\b([45]\d\d) [A-Z][a-z]+")
_REFUSED = {
    "ExpiredToken",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AccessDenied",
    "InvalidToken",
    "TokenRefreshRequired",
}
T = TypeVar("T")


def open_objects(url: str, where: str, make: bool) -> ObjectStore:
    """Open the store at a URL of a bucket; `where` is its text for people.

    See `StoreAddress.open`.
    """
    store = ObjectStore(url, where)
    try:
        if not make and not store.exists():
            raise NoStore(where)
    except BaseException:
        store.close()
        raise
    return store


class ObjectStore:
    """`OpenStore` in a bucket, below a prefix. The bucket must exist.

    Raises:
        StoreError: if the address or the configuration of its service is wrong.
    """

    def __init__(self, url: str, where: str) -> None:
        self._where = where
        if self._where != url:
            raise StoreError(
                f"the address {self._where} was given with a user, password or query: give {self._where}, and credentials "
                "by the environment"
            )
        self._single = not url.startswith("s3://")
        plain = any(os.environ.get(each, "").startswith("http://") for each in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"))
        options: Any = {"timeout": "60s", "connect_timeout": "5s", **({"allow_http": True} if plain else {})}
        retries: Any = {"max_retries": 0}
        try:
            self._objects: Any = from_url(url, client_options=options, retry_config=retries)
        except Exception as error:
            raise StoreError(
                f"the store {self._where} cannot be used: its address or the settings of its service in the environment are "
                f"wrong ({type(error).__name__})"
            ) from None
        self._closed = False
        self._lost = False
        self._changed = threading.Condition()
        self._doomed: set[str] = set()
        self._deleter: threading.Thread | None = None
        self._several = ThreadPoolExecutor(AHEAD + 1, "falkirk-objects")

    def close(self) -> None:
        """Finish pending deletes, and release the store."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._deleter is not None:
            self._deleter.join(5)
        self._several.shutdown()

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Store

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        """Write a blob, durably, if there is none of this name; see `Store.put`."""
        self._check(name)
        self._settle(lambda each: each == name)
        if self._lost:
            raise StoreBusy(f"another job took the store {self._where} over: this one was away for too long", None)
        data = b"".join(as_bytes(part) for part in parts)
        mark = secrets.token_hex(16)

        def write() -> None:
            try:
                obstore.put(self._objects, name, data, mode="create", attributes={_MARK: mark}, use_multipart=False)
            except exceptions.AlreadyExistsError:
                if self._mark(name) != mark:
                    raise AlreadyThere(name) from None

        self._again(write, f"writing {name}")

    def get(self, name: str) -> memoryview:
        """All bytes of a blob; see `Store.get`."""
        self._check(name)
        self._settle(lambda each: each == name)

        def read() -> memoryview:
            data = obstore.get(self._objects, name).bytes()
            memory = aligned_memory(len(data))
            memory[:] = memoryview(data)
            return memory.toreadonly()

        return self._again(read, f"reading {name}", name)

    def names(self, prefix: str) -> list[str]:
        """Names beginning with `prefix`, sorted; the newest of each journal are verified."""
        found = set(self._listed(prefix))
        owners = {name.rpartition("/")[0] for name in found if segment_number(name) is not None}
        if prefix.endswith("/"):
            owners.add(prefix[:-1])
        for owner in owners:
            self._verify(owner, found)
        return sorted(name for name in found if name.startswith(prefix))

    def delete(self, name: str) -> None:
        """Remove a blob, if it is there: soon, in a batch with others."""
        self._check(name)
        with self._changed:
            self._doomed.add(name)
            if self._deleter is None:
                self._deleter = threading.Thread(target=self._delete, name="falkirk-deletes", daemon=True)
                self._deleter.start()
            self._changed.notify_all()

    def size(self, prefix: str = "") -> int:
        """Bytes of all blobs with names beginning with `prefix`."""
        return sum(self._listed(prefix).values())

    # What a store has beyond that

    def exists(self) -> bool:
        """True if there is an object below the address."""
        return self._exists("store") or bool(self._listed(""))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the store for this job while inside; see `OpenStore.lock`.

        The lock is an object that its holder renews, each time only if it is as the holder left it. Another process takes it
        when it was not renewed for `EXPIRY` seconds by its own clock, or at once if the holder was a process of this host and
        is dead. Journals are fenced besides: a holder that was only slow can do no harm.
        """
        mine = Holder.here(secrets.token_hex(16))
        tag = self._take(mine)
        ended = threading.Event()
        beat = threading.Thread(target=self._renew, args=(mine, tag, ended), name="falkirk-lock", daemon=True)
        beat.start()
        try:
            yield
        finally:
            ended.set()
            beat.join()

    def last_user(self) -> tuple[int, str] | None:
        """Last holder of the lock, process and host; None before any."""
        found = self._holder()
        return None if found is None else (found[0].pid, found[0].host)

    def make_private(self) -> str | None:
        """None: its owner's settings decide about readers of a bucket."""
        return None

    # Lock

    def _holder(self) -> tuple[Holder, Any] | None:
        def read() -> tuple[bytes, Any]:
            found = obstore.get(self._objects, _LOCK)
            return bytes(found.bytes()), _tag(found.meta)

        try:
            data, tag = self._again(read, "reading the lock", _LOCK)
        except NotThere:
            return None
        return read_holder(data, self._where), tag

    def _take(self, mine: Holder) -> Any:
        seen: Any = None
        since = 0.0
        while True:
            found = self._holder()
            if found is None:
                mode: Any = "create"
            else:
                holder, mode = found
                if not holder.free and not holder.is_dead():
                    if holder.is_alive():
                        raise self._busy(holder)
                    if mode != seen and seen is not None:
                        raise self._busy(holder)
                    if seen is None:
                        seen, since = mode, time.monotonic()
                    if time.monotonic() - since < EXPIRY:
                        time.sleep(BEAT / 2)
                        continue
            tag = self._write_lock(mine, mode)
            if tag is not None:
                return tag

    def _write_lock(self, holder: Holder, mode: Any) -> Any:
        """Write the lock if it is as `mode` says; its new tag, or None if it is not."""

        def write() -> Any:
            try:
                result = obstore.put(self._objects, _LOCK, msgspec.json.encode(holder), mode=mode, use_multipart=False)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError, exceptions.NotFoundError):
                found = self._holder()  # perhaps written by a try that had no answer
                return found[1] if found is not None and found[0] == holder else None
            return _tag(result)

        return self._again(write, "locking the store")

    def _renew(self, mine: Holder, tag: Any, ended: threading.Event) -> None:
        while not (over := ended.wait(BEAT)):
            mine = msgspec.structs.replace(mine, beat=mine.beat + 1)
            try:
                tag = self._write_lock(mine, tag)
            except StoreError:
                continue  # puts say so
            if tag is None:
                self._lost = True
                return
        if over:
            try:
                self._write_lock(msgspec.structs.replace(mine, free=True), tag)
            except StoreError:
                return  # it expires

    def _busy(self, holder: Holder) -> StoreBusy:
        return StoreBusy(
            f"the job of process {holder.pid} on {holder.host} is using the store {self._where}; "
            "wait for its end (or stop it, with its workers), or choose another store",
            holder.pid,
        )

    # Inside

    def _check(self, name: str) -> None:
        if self._closed:
            raise StoreError(f"the store {self._where} was closed")
        check_name(name)

    def _mark(self, name: str) -> str | None:
        attributes: Any = obstore.get(self._objects, name, options={"head": True}).attributes
        return attributes.get(_MARK) if attributes else None

    def _exists(self, name: str) -> bool:
        try:
            self._again(lambda: obstore.head(self._objects, name), f"looking for {name}", name)
        except NotThere:
            return False
        return True

    def _listed(self, prefix: str) -> dict[str, int]:
        if self._closed:
            raise StoreError(f"the store {self._where} was closed")
        self._settle(lambda each: each.startswith(prefix))
        below = prefix.rpartition("/")[0]

        def read() -> dict[str, int]:
            pages: Iterable[Any] = obstore.list(self._objects, below or None)
            return {str(each["path"]): int(each["size"]) for page in pages for each in page}

        found = self._again(read, "listing")
        return {name: size for name, size in found.items() if name.startswith(prefix) and is_name(name)}

    def _verify(self, owner: str, found: set[str]) -> None:
        """Mend the end of a journal in a list."""
        numbers = sorted(
            number for name in found if name.startswith(f"{owner}/") and (number := segment_number(name)) is not None
        )
        while numbers and not self._exists(segment_name(owner, numbers[-1])):
            found.discard(segment_name(owner, numbers.pop()))
        newest = numbers[-1] if numbers else -1
        while True:
            following = [segment_name(owner, newest + each) for each in range(1, AHEAD + 1)]
            there = [name for name, exists in zip(following, self._several.map(self._exists, following)) if exists]
            if not there:
                return
            found.update(there)
            newest = max(number for name in there if (number := segment_number(name)) is not None)

    def _settle(self, concerned: Callable[[str], bool]) -> None:
        """Wait for pending deletes of `concerned` names."""
        with self._changed:
            self._changed.wait_for(lambda: not any(concerned(each) for each in self._doomed), PATIENCE)

    def _delete(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._doomed or self._closed)
                batch = sorted(self._doomed)[:_BATCH]
                if not batch:
                    return
            with suppress(StoreError):  # whoever takes over finds them
                self._again(partial(self._delete_batch, batch), "deleting")
            with self._changed:
                self._doomed.difference_update(batch)
                self._changed.notify_all()

    def _delete_batch(self, batch: list[str]) -> None:
        for group in [[name] for name in batch] if self._single else [batch]:
            try:
                obstore.delete(self._objects, group)
            except (exceptions.NotFoundError, FileNotFoundError):
                continue

    def _again(self, act: Callable[[], T], doing: str, name: str | None = None) -> T:
        """Result of `act`, tried again while the store does not answer."""
        began = time.monotonic()
        pause, longest = _BACK_OFF
        note = FIRST_NOTE
        while True:
            try:
                result = act()
            except (exceptions.BaseError, OSError) as error:
                waited = time.monotonic() - began
                failure = self._failure(error, doing, name, waited)
                if failure is not None:
                    raise failure from None
            else:
                if note > FIRST_NOTE:
                    self._say(f"the store {self._where} answers again, after {time.monotonic() - began:.0f} s")
                return result
            if waited >= note:
                self._say(
                    f"the store {self._where} does not answer for {waited:.0f} s; nothing is lost, and nothing is acknowledged "
                    "until it does"
                )
                note = 2 * waited
            time.sleep(pause)
            pause = min(longest, 2 * pause)

    def _failure(self, error: Exception, doing: str, name: str | None, waited: float) -> StoreError | None:
        """Error of the store for one of the library; None: try again."""
        text = str(error)
        code = found[1] if (found := _CODE.search(text)) else ""
        status = found[1] if (found := _STATUS.search(text)) else ""
        what = f"{doing} in {self._where} failed"
        if code == "NoSuchBucket":
            return StoreGone(f"{what}: there is no such bucket; make it, or choose another store")
        if isinstance(error, exceptions.NotFoundError | FileNotFoundError):
            return NotThere(name, self._where) if name is not None else StoreGone(f"{what}: it is not there")
        refused = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
        if refused or code in _REFUSED or status in ("401", "403"):
            reason = code or status or type(error).__name__
            return StoreUnwritable(
                f"{what}: its service refuses the credentials ({reason}); they are missing, wrong or expired, or have no right "
                "to do that. Renew them in the environment, then run the job again: it resumes"
            )
        again = not status or status in ("408", "409", "429") or status.startswith("5")
        if again and waited < PATIENCE and not self._closed:
            return None
        reason = " ".join(filter(None, (code, status))) or type(error).__name__
        if again:
            what += f", and was tried again for {waited:.0f} s"
        return StoreError(f"{what} ({reason}); see that its service can be reached, then run the job again: it resumes")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"falkirk: {text}\n")
        sys.stderr.flush()


def _tag(of: Any) -> dict[str, str]:
    """State of an object, as a condition for the next put."""
    return {key: of[key] for key in ("e_tag", "version") if of[key] is not None}
