"""Messages and records of a known type, from MessagePack: read as that, or refused with one kind of error."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from timely.errors import ProtocolError

T = TypeVar("T")

MOST_SHOWN = 300
"""Characters of somebody else's error that go into one of ours."""


class Typed(Generic[T]):
    """Reads values of type `kind`; `what` says in errors what they are."""

    def __init__(self, what: str, kind: Any) -> None:
        self.what = what
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)

    def decode(self, data: bytes | bytearray | memoryview) -> T:
        """The value in `data`.

        Raises:
            ProtocolError: if there is none of this type.
        """
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            raise ProtocolError(f"{self.what} cannot be read: {shown(error)}") from None


def shown(error: BaseException) -> str:
    """The text of `error`, on one line of bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} ..."
