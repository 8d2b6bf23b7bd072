"""Addresses of stores: scheme (kind of store) and place.

Drivers pass them between processes, and open stores by them alone. Paths are addresses of folders, as `file://` is. Further
kinds are entry points of installed distributions, group `falkirk.stores`: the name is the scheme, the object an `Opener`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, unquote_to_bytes

import msgspec

from recovery.store.interface import NoStore, OpenStore, StoreError

GROUP = "falkirk.stores"
"""Group of entry points with kinds of stores."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_FILE = "file"
_BUCKETS = ("az", "gs", "s3")


class StoreAddress(msgspec.Struct, frozen=True):
    """Address of a store, complete: it means the same in every process of a job.

    As text it has no credentials (user, password, query), and is a path for a store in a folder.
    """

    url: str

    @staticmethod
    def of(where: Where) -> StoreAddress:
        """Address by URL, or by the path of a folder, which may be relative.

        Raises:
            StoreError: if there is no such kind of store, or it is no address.
        """
        if isinstance(where, StoreAddress):
            return where
        found = _URL.fullmatch(where) if isinstance(where, str) else None
        if found is None:
            return StoreAddress(f"{_FILE}://{quote(os.fsencode(Path(os.fsdecode(where)).absolute()))}")
        scheme, place = found[1].lower(), found[2]
        address = StoreAddress(f"{scheme}://{place}")
        if scheme != _FILE:
            _opener(scheme)
            return address
        path = place.removeprefix("localhost")
        if not path.startswith("/") or "?" in path or "#" in path:
            raise StoreError(
                f"{_without_credentials(address.url)} is no address of a folder of this host: give file:///path (with ? and # "
                "as %3F and %23), or a path"
            )
        return StoreAddress(f"{_FILE}://{quote(unquote_to_bytes(path))}")

    @property
    def scheme(self) -> str:
        """Kind of the store."""
        return self.url.partition("://")[0]

    def open(self, make: bool = False) -> OpenStore:
        """Open the store; `make` it if it is missing.

        Raises:
            NoStore: if there is none.
            StoreError: if it cannot be opened, or there is no such kind.
        """
        return _opener(self.scheme)(self, make)

    @property
    def local(self) -> Path:
        """The store's folder on this host, for all that is not blobs; not made here.

        All processes of a user on this host find the same one. Of a store in a folder it is that folder.
        """
        if self.scheme == _FILE:
            return Path(os.fsdecode(unquote_to_bytes(self.url.removeprefix(f"{_FILE}://"))))
        states = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return Path(states, "falkirk", hashlib.sha256(str(self).encode()).hexdigest()[:16])

    @property
    def local_is_shared(self) -> bool:
        """True if `local` is the same folder on all hosts of the store."""
        return self.scheme == _FILE

    def __str__(self) -> str:
        return str(self.local) if self.scheme == _FILE else _without_credentials(self.url)

    def __repr__(self) -> str:
        return f"StoreAddress({str(self)!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("url", str(self))]


Where: TypeAlias = str | os.PathLike[str] | StoreAddress
"""Address of a store, as a user may give it."""

Opener: TypeAlias = Callable[[StoreAddress, bool], OpenStore]
"""Kind of store: opens the one at an address, see `StoreAddress.open`."""


def _open_folder(address: StoreAddress, make: bool) -> OpenStore:
    from recovery.store.local import LocalStore

    if not make and not os.path.exists(address.local):
        raise NoStore(str(address))
    return LocalStore(address.local)


def _open_bucket(address: StoreAddress, make: bool) -> OpenStore:
    from recovery.store.objects import open_objects

    return open_objects(address.url, str(address), make)


def _opener(scheme: str) -> Opener:
    """Opener of a scheme. Raises StoreError."""
    if scheme == _FILE:
        return _open_folder
    if scheme in _BUCKETS:
        if find_spec("obstore") is None:
            raise StoreError(
                f"stores with addresses {scheme}:// need a package that is not installed: "
                "python3 -m pip install 'falkirk[object-store]'"
            )
        return _open_bucket
    from importlib.metadata import entry_points  # 30 ms that a store in a folder does not need

    found = entry_points(group=GROUP)
    if scheme not in found.names:
        there = ", ".join(f"{name}://" for name in sorted({_FILE, *_BUCKETS, *found.names}))
        raise StoreError(
            f"there is no kind of store with addresses {scheme}://; there are {there} and paths of folders"
        )
    try:
        opener: Opener = found[scheme].load()
    except Exception as error:  # of code from elsewhere
        raise StoreError(
            f"stores with addresses {scheme}:// cannot be used here: {found[scheme].value} cannot be loaded "
            f"({type(error).__name__}: {error})"
        ) from error
    return opener


def _without_credentials(url: str) -> str:
    """URL without user, password, query and fragment."""
    scheme, _, place = url.partition("://")
    host, slash, path = re.split(r"[?#]", place)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
