"""Durable storage: immutable blobs, segments, and journals made of segments.

`open` opens a store by its `address`. `interface` says what a store is and what can go wrong with it; `local` is one in a
folder, and known here only. `segments` is the format of what is written, `journal` decides what goes into which segment and
which ones are still needed, `reading` finds them again after a failure: all three without I/O of their own.

Enters: sections. Leaves: segments to write, and the sections again.
"""

from recovery.store.address import StoreAddress, Where
from recovery.store.interface import OpenStore

__all__ = ["OpenStore", "StoreAddress", "Where", "open"]


def open(where: Where, make: bool = False) -> OpenStore:
    """Open the store at a URL or path; see `StoreAddress.of` and `StoreAddress.open`."""
    return StoreAddress.of(where).open(make)
