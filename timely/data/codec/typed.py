"""MessagePack decoding into a known type, with one kind of error."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from timely.errors import ProtocolError

T = TypeVar("T")

MOST_SHOWN = 300
"""Most characters quoted from a foreign error."""


class Typed(Generic[T]):
    """MessagePack decoder for type `kind`, with the value's name for errors."""

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
