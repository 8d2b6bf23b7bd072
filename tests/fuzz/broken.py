"""Targets that fail at the byte "!", each in its own way: to see that the harness notices."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from random import Random

from tests.fuzz.targets import Read, Target, plain


def _at_the_mark(fail: Callable[[], object]) -> Read:
    def read(data: bytes) -> None:
        if b"!" in data:
            fail()

    return read


def _crash() -> None:
    ctypes.string_at(0)


def _eat() -> None:
    bytearray(b"x") * (300 << 20)


def _loop() -> None:
    while True:
        pass


def _raise() -> None:
    raise KeyError("x")


def _mark(random: Random, data: bytes) -> bytes:
    return data + b"!" + data if random.random() < 0.3 else data


BROKEN = {
    f"broken: {name}": Target(
        f"broken: {name}", lambda: [b"sample"], plain(_at_the_mark(fail)), change=_mark, seconds=0.5
    )
    for name, fail in (
        ("another error", _raise),
        ("crash", _crash),
        ("memory", _eat),
        ("loop", _loop),
        ("code", lambda: os._exit(3)),
    )
}
