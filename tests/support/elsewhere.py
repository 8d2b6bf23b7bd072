"""A kind of store that only tests have: its blobs are where no driver would look for them.

`elsewhere://host/path` keeps them, under names of its own, in the folder `path`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from recovery.store.address import StoreAddress
from recovery.store.interface import AlreadyThere, Buffer, NoStore, NotThere
from recovery.store.local import LocalStore


class Elsewhere:
    """`OpenStore` with all names hidden below one that no driver knows."""

    def __init__(self, folder: str) -> None:
        self._blobs = LocalStore(folder)

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        try:
            self._blobs.put(_hidden(name), parts)
        except AlreadyThere:
            raise AlreadyThere(name) from None

    def get(self, name: str) -> memoryview:
        try:
            return self._blobs.get(_hidden(name))
        except NotThere:
            raise NotThere(name) from None

    def names(self, prefix: str) -> list[str]:
        return sorted(name for each in self._blobs.names("h-") if (name := _shown(each)).startswith(prefix))

    def delete(self, name: str) -> None:
        self._blobs.delete(_hidden(name))

    def size(self, prefix: str = "") -> int:
        return sum(self._blobs.size(_hidden(name)) for name in self.names(prefix))

    @contextmanager
    def lock(self) -> Iterator[None]:
        with self._blobs.lock():
            yield

    def last_user(self) -> tuple[int, str] | None:
        return self._blobs.last_user()

    def make_private(self) -> str | None:
        return None

    def close(self) -> None:
        self._blobs.close()

    def __enter__(self) -> Elsewhere:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def opened(address: StoreAddress, make: bool) -> Elsewhere:
    """Open the store at an address."""
    folder = urlsplit(address.url).path
    if not make and not os.path.isdir(folder):
        raise NoStore(str(address))
    return Elsewhere(folder)


def _hidden(name: str) -> str:
    return f"h-{name.encode().hex()}.blob"


def _shown(name: str) -> str:
    return bytes.fromhex(name.removeprefix("h-").removesuffix(".blob")).decode()
