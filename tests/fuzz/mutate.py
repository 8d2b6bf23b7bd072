"""Damage to bytes, drawn from a seed: of any bytes, and of MessagePack by its values."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

NUMBERS = [
    *(0, 1, 2, 3, 7, 8, 9, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 1000, 32767, 32768, 65535, 65536),
    *(
        1 << 20,
        1 << 24,
        1 << 27,
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 1,
        1 << 32,
        1 << 40,
        1 << 53,
        1 << 60,
        (1 << 62) - 1,
    ),
    *((1 << 62), (1 << 63) - 1, -1, -2, -128, -32768, -(1 << 31), -(1 << 63)),
]
"""Lengths, offsets and counts that are too small, too large, or next to a border."""

_VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0.0,
        -1.5,
        float("nan"),
        float("inf"),
        1e300,
        "",
        "x",
        "\x00",
        "é" * 5,
        "a" * 300,
        b"",
        b"\xff\xfe",
    ),
    *([], [[]], {}, {"a": 1}, [0] * 50, [None], "subprocess:Popen", "__main__:X", "builtins:object", "tag", "type"),
]


def mutate(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """`data` with one to a few damages; `others` are spliced in."""
    damaged = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        _damage(random, damaged, others)
    return bytes(damaged)


def noise(random: Random, most: int = 300) -> bytes:
    """Bytes that mean nothing."""
    return random.randbytes(random.randrange(most))


def _damage(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    kind = random.randrange(12)
    at = random.randrange(len(data)) if data else 0
    if kind == 0 or not data:
        data[at:at] = random.randbytes(random.choice((1, 1, 2, 4, 20)))
    elif kind == 1:
        data[at] ^= 1 << random.randrange(8)
    elif kind == 2:
        data[at] = random.randrange(256)
    elif kind == 3:
        data[at] = random.choice((0, 1, 0x7F, 0x80, 0xC0, 0xFF, 0x90, 0xDD, 0xDF, 0xC6, 10, 34, 44, 91, 123, 125))
    elif kind in (4, 5, 6):
        width = random.choice((1, 2, 4, 4, 8))
        if random.random() < 0.7:
            at -= at % width  # numbers of most formats are aligned
        number = random.choice(NUMBERS)
        if random.random() < 0.3:
            number = len(data) + random.randrange(-9, 10)
        data[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, random.choice(("little", "little", "big")))
    elif kind == 7:
        del data[at:]
    elif kind == 8:
        del data[at : at + random.choice((1, 1, 2, 4, 8, 50))]
    elif kind == 9:
        data[at:at] = data[at : at + random.choice((1, 4, 16, 100))]
    elif kind == 10:
        other = random.choice(others)
        start = random.randrange(len(other) + 1)
        part = other[start : start + random.choice((1, 8, 64, 500))]
        data[at : at + (len(part) if random.random() < 0.5 else 0)] = part
    else:
        to = random.randrange(len(data))
        size = random.choice((1, 4, 8, 32))
        data[at : at + size], data[to : to + size] = data[to : to + size], data[at : at + size]


def mutate_value(random: Random, value: Any) -> Any:
    """A plain value with one value inside it changed, gone, or there twice."""
    if random.random() < 0.15 or not isinstance(value, list | dict) or not value:
        return _another(random, value)
    if isinstance(value, dict):
        key = random.choice(list(value))
        changed = dict(value)
        how = random.randrange(6)
        if how == 0:
            del changed[key]
        elif how == 1:
            changed[random.choice(("x", "type", str(key) + "_"))] = changed.pop(key)
        else:
            changed[key] = mutate_value(random, value[key])
        return changed
    at = random.randrange(len(value))
    items = list(value)
    how = random.randrange(10)
    if how == 0:
        del items[at]
    elif how == 1:
        items.insert(at, items[at])
    elif how == 2:
        to = random.randrange(len(items))
        items[at], items[to] = items[to], items[at]
    else:
        items[at] = mutate_value(random, items[at])
        if how == 3:  # what is said of a list is often said by two that stand together
            items[at - 1] = mutate_value(random, items[at - 1])
    return items


def _another(random: Random, value: Any) -> Any:
    how = random.randrange(8)
    if how == 0:
        return random.choice(NUMBERS)
    if how == 1:
        return random.choice(_VALUES)
    if how == 2:
        return [value]
    if how == 3:
        for _ in range(random.choice((1, 3, 50, 2000))):
            value = [value]
        return value
    if isinstance(value, bool) or value is None:
        return random.choice((not value, 0, 1, None))
    if isinstance(value, int):
        return random.choice((value + 1, value - 1, -value, value * 2, random.choice(NUMBERS))) % (1 << 63)
    if isinstance(value, str):
        return random.choice(
            (value + value, value[:-1], value.swapcase(), f"{value}.x", value.replace(":", "."), "\ud7ff")
        )
    if isinstance(value, bytes):
        return mutate(random, value, [value])
    if isinstance(value, list):
        return random.choice((value + value, value[: len(value) // 2], value[::-1], [value, value]))
    return random.choice(_VALUES)


_encoder = msgspec.msgpack.Encoder()


def packed(value: Any) -> bytes:
    """A plain value as MessagePack; what has no such form, as noise would have none, is left out."""
    try:
        return _encoder.encode(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return b"\xc1"
