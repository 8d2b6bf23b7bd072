"""Identity of a store: 16 random bytes, carried by every segment.

So files of two stores never mix.
"""

from __future__ import annotations

import msgspec

from recovery.store.interface import AlreadyThere, NotThere, Store, StoreCorrupt, StoreError, StoreVersion
from recovery.store.segments import FORMAT

NAME = "store"


class _Identity(msgspec.Struct, tag="falkirk-store"):
    version: int
    id: bytes


_decoder = msgspec.json.Decoder(_Identity)


def store_id(store: Store) -> bytes | None:
    """Id of a store; None if it is empty.

    Raises:
        StoreError: if it has none and is not empty. StoreVersion, StoreCorrupt: as for segments.
    """
    try:
        data = store.get(NAME)
    except NotThere:
        others = store.names("")
        if not others:
            return None
        raise StoreError(
            f"this is not a store of falkirk: it has {others[0]!r}, but no file {NAME!r}; choose an empty folder, or a store"
        ) from None
    try:
        identity = _decoder.decode(bytes(data))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StoreCorrupt(NAME, 0, f"it does not say which store this is ({error})") from error
    if identity.version != FORMAT:
        raise StoreVersion(NAME, identity.version, FORMAT)
    if len(identity.id) != 16:
        raise StoreCorrupt(NAME, 0, f"the id of the store has {len(identity.id)} bytes instead of 16")
    return identity.id


def make_store_id(store: Store, fresh: bytes) -> bytes:
    """Id of a store, set to `fresh` (16 random bytes) if the store is empty.

    Of several callers one decides.
    """
    known = store_id(store)
    if known is not None:
        return known
    try:
        store.put(NAME, [msgspec.json.encode(_Identity(FORMAT, fresh)) + b"\n"])
    except AlreadyThere:
        return make_store_id(store, fresh)
    return fresh
