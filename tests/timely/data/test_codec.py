"""The codec: equal values with equal types come back, at every depth; anything else is an error that says where."""

from __future__ import annotations

import datetime as dt
import enum
import math
import subprocess
import sys
import uuid
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.data.codec import carry, decode, decode_batch, encode, encode_batch, register
from timely.errors import CodecError


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: Any


@dataclass
class Open:
    a: str
    b: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.a += "!"  # Decoding must not run this a second time.


@dataclass(frozen=True)
class Nothing:
    pass


class Pair(NamedTuple):
    left: Any
    right: Any


class Packet(msgspec.Struct, kw_only=True):
    size: int
    body: Any = None


class Colour(enum.Enum):
    RED = "r"
    BLUE = object()


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.Flag):
    READ = 1
    WRITE = 2


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return type(other) is Money and other.cents == self.cents

    def __hash__(self) -> int:
        return self.cents

    def __repr__(self) -> str:
        return f"Money({self.cents})"


register(Money, lambda money: money.cents, Money, name="money")


# Classes that keep their address however this file is imported: it is part of what is written.


@dataclass
class Kept:
    a: int
    b: Any


Kept.__module__ = "kept"


class KeptColour(enum.Enum):
    __module__ = "kept"
    RED = 1


class KeptMode(enum.Flag):
    __module__ = "kept"
    READ = 1
    WRITE = 2


def same(a: Any, b: Any) -> bool:
    """Equal, with equal types at every depth. Written apart from the codec: it is the oracle."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and all(map(same, a, b)) and getattr(a, "maxlen", 0) == getattr(b, "maxlen", 0)
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, set | frozenset):
        return len(a) == len(b) and sorted(map(exact, a)) == sorted(map(exact, b))
    if isinstance(a, dt.datetime | dt.time):
        return a.isoformat() == b.isoformat() and a.fold == b.fold and same(a.tzinfo, b.tzinfo)
    if isinstance(a, Decimal):
        return a.as_tuple() == b.as_tuple()
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, pl.DataFrame | pl.Series):
        return a.equals(b) and (a.schema == b.schema if isinstance(a, pl.DataFrame) else a.dtype == b.dtype)
    if isinstance(a, pa.Table):
        return a.equals(b)
    if isinstance(a, Point | Open):
        return all(same(getattr(a, name), getattr(b, name)) for name in a.__dataclass_fields__)
    if isinstance(a, Packet):
        return same(a.size, b.size) and same(a.body, b.body)
    return bool(a == b)


def exact(value: Any) -> str:
    return f"{type(value).__name__}:{value!r}"


ZONES = st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=-3, seconds=7)), ZoneInfo("Europe/Rome")])
KEYS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**63 - 1, max_value=2**64 + 1),
    st.floats(),
    st.text(st.characters()),  # with surrogates
    st.binary(),
    st.dates(),
    st.datetimes(timezones=ZONES, allow_imaginary=True),
    st.times(),
    st.timedeltas(),
    st.decimals(),
    st.uuids(),
    st.sampled_from([*Colour, *Level, *Mode, Mode.READ | Mode.WRITE]),
    st.builds(Money, st.integers(0, 9)),
    st.builds(Nothing),
).filter(lambda value: not (isinstance(value, Decimal) and value.is_snan()))
LEAVES = st.one_of(
    KEYS,
    st.complex_numbers(allow_nan=False),
    st.binary().map(bytearray),
    st.sampled_from(
        [
            np.int8(-3),
            np.float32(1.5),
            np.datetime64("2024-01-01", "D"),
            np.bool_(True),
            np.str_("x"),
            np.bytes_(b"x\0"),
        ]
    ),
    st.sampled_from([dt.UTC, ZoneInfo("Asia/Tokyo"), dt.timezone(dt.timedelta(hours=1), "CET")]),
)


def _nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner),
        st.dictionaries(st.sampled_from("ab"), inner),
        st.sets(KEYS),
        st.frozensets(KEYS),
        st.lists(inner).map(lambda items: deque(items, 3)),
        st.builds(Point, st.integers(), inner),
        st.builds(Pair, inner, inner),
        st.builds(Packet, size=st.integers(), body=inner),
    )


VALUES = st.recursive(LEAVES, _nest, max_leaves=12)


@given(VALUES)
def test_any_carried_value_comes_back_with_its_types(value: Any) -> None:
    assert same(decode(encode(value)), value)


@given(st.lists(VALUES, max_size=6))
def test_any_batch_of_records_comes_back(batch: list[Any]) -> None:
    header, payload = encode_batch(batch)
    assert same(decode_batch(header, b"".join(map(bytes, payload))), batch)


@given(st.lists(st.tuples(KEYS, st.tuples(st.integers(), LEAVES)), min_size=9, max_size=40))
def test_pairs_in_columns_come_back(batch: list[Any]) -> None:
    header, [payload] = encode_batch(batch)
    assert same(decode_batch(header, payload), batch)


@pytest.mark.parametrize(
    "batch",
    [
        [],
        [()],
        [()] * 20,
        [(1,)] * 20,
        [(1, 2), [1, 2]] * 10,
        [(1, 2), (1, 2, 3)] * 10,
        [(1, True), (1, 1), (1, 1.0), (1, None)] * 5,
        [tuple(range(1000))],
        [(*range(1000), [1])],
        [{"a": 1, "b": 2}, {"a": 1.5, "b": None}] * 8,
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}] * 8,
        [{1: "x"}, {True: "x"}, {1.0: "x"}],
        [{}, {}, {}],
        [[], [[]], [[[]]]],
        [Point(1, 2)] * 30 + [Pair(1, 2)] * 30 + [(1, 2)] * 30,
        [Nothing()] * 12,
        [("k", 2**64), ("k", -(2**63) - 1)] * 10,
        ["\ud800", "fine"] * 10,
        [(0, "a", 1.0, None, b"")] * 20,
        [Counter("abca"), OrderedDict(b=1, a=2)],
    ],
    ids=repr,
)
def test_awkward_shapes_come_back(batch: list[Any]) -> None:
    header, [payload] = encode_batch(batch)
    assert same(decode_batch(header, payload), batch)


def test_decoding_runs_no_code_of_a_dataclass() -> None:
    assert decode(encode(Open("a", [1]))) == Open("a", [1])
    assert decode(encode(Open("a"))).a == "a!"


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i2").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(10)[::3],
        np.array(5),
        np.zeros((0, 3)),
        np.array(["a", "bc"]),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["2024-01-01", "NaT"], "M8[ns]"),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_come_back_and_may_be_written_to(array: np.ndarray[Any, Any]) -> None:
    back = decode(encode((1, array)))[1]
    assert same(back, array)
    assert back.flags.writeable
    assert back.flags.f_contiguous == array.flags.f_contiguous or not array.flags.c_contiguous


def test_tables_inside_records_come_back() -> None:
    table, frame = pa.table({"a": [1, None]}), pl.DataFrame({"b": ["x", "y"]})
    value = ("epoch", [table, frame, frame["b"]])
    assert same(decode(encode(value)), value)


# What is refused


class Text(str):
    pass


class Bare(Open):
    pass


@pytest.mark.parametrize(
    ("batch", "where", "what"),
    [
        ([1, 2, 3, {"x": object()}], "record 3, value of 'x'", "object"),
        ([(1, [2, lambda: 0])] * 2, "record 0, item 1, item 1", "function"),
        ([Point(1, Point(2, Text("t")))], "record 0, field 'y', field 'y'", "subclass of str"),
        ([Bare("a")], "record 0", "@dataclass too"),
        ([Packet(size=1, body={3 + 4j: range(3)})], "record 0, field 'body', value of (3+4j)", "range"),
        ([np.array([object()])], "record 0", "dtype"),
        ([{"a": 1, "b": 2}] * 9 + [{"a": 1, "b": Text()}], "record 9, value of 'b'", "test_codec.Text"),
    ],
)
def test_refusal_names_the_place_and_the_type(batch: list[Any], where: str, what: str) -> None:
    with pytest.raises(CodecError) as caught:
        encode_batch(batch)
    assert str(caught.value).startswith(f"{where}: ")
    assert what in str(caught.value)


def test_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CodecError, match="contains itself"):
        encode(loop)


def test_local_class_is_found_by_its_own_process() -> None:
    @carry
    @dataclass(frozen=True)
    class Local:
        a: int

    assert decode(encode([Local(1)])) == [Local(1)]


def test_class_of_the_main_module_is_found_by_another_process_of_the_same_program() -> None:
    program = (
        "import sys\nfrom dataclasses import dataclass\nfrom timely.data.codec import encode, decode\n"
        "@dataclass(frozen=True)\nclass P:\n    a: int\n"
        "def build():\n    @dataclass\n    class Inner:\n        b: int\n    return Inner\nInner = build()\n"
        "if sys.argv[1:]: assert decode(bytes.fromhex(sys.argv[1])) == (P(3), Inner(4))\n"
        "else: print(encode((P(3), Inner(4))).hex())\n"
    )
    run = [sys.executable, "-c", program]
    written = subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([*run, written], check=True)
    with pytest.raises(CodecError, match="__main__:P is not known"):
        decode(bytes.fromhex(written))


def test_only_data_classes_are_ever_taken_for_a_name() -> None:
    data = encode(Point(1, 2))
    for name in ("subprocess:Popen", "builtins:eval", "os:system", f"{__name__}:Money"):
        written = msgspec.msgpack.encode(f"{__name__}:Point")
        forged = data.replace(written, msgspec.msgpack.encode(name))
        assert forged != data
        with pytest.raises(CodecError):
            decode(forged)


def test_changed_fields_are_an_error_that_names_them() -> None:
    data = encode(Point(1, 2)).replace(b"\xa1y", b"\xa1z")
    with pytest.raises(CodecError, match=r"\['x', 'z'\]"):
        decode(data)


def test_registering_needs_a_free_name_and_a_class_not_carried() -> None:
    with pytest.raises(CodecError, match="another name"):
        register(Bare, lambda value: value.a, Bare, name="money")
    with pytest.raises(CodecError, match="carried already"):
        register(dict, list, dict)


@given(VALUES, st.data())
def test_damaged_bytes_give_a_value_or_a_codec_error(value: Any, data: st.DataObject) -> None:
    good = bytearray(encode(value))
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    for damaged in (good, good[:cut]):
        try:
            decode(damaged)
        except CodecError as error:
            assert str(error)  # noqa: PT017 - most damage shows, some gives another value


def test_unique_identifiers_and_registered_types_mix_with_plain_values() -> None:
    value = [uuid.UUID(int=7), Money(3), None, 4, Money(5)]
    assert same(decode(encode(value)), value)


RECORDS_OF_ALL_KINDS: list[tuple[Any, str]] = [
    ([None, True, -1, 1.5, "a", b"b"], "93109106920096c0c3ffcb3ff8000000000000a161c40162"),
    (2**70, "920291c409000000000000000040"),
    ("\ud800", "920391c403eda080"),
    ([("a", 1)] * 9, "9310910996040209c0920099a161a161a161a161a161a161a161a161a161920099010101010101010101"),
    (
        [("a", (1, [2]))] * 9,
        "9310910996040209c0920099a161a161a161a161a161a161a161a161a16196040209c0920099010101010101010101931099010101010101010101920099020202020202020202",
    ),
    ([(1,), (1, 2)], "931091029305920102920093010102"),
    ({1, 2}, "931191029200920102"),
    (frozenset(["a"]), "93129101920091a161"),
    ({"a": 1, 2: None}, "94139102920092a1610292009201c0"),
    ([{"a": 1}, {"a": 2}], "931091029314920091a161940102c09200920102"),
    (
        dt.datetime(2024, 1, 1, 2, tzinfo=ZoneInfo("Europe/Rome"), fold=1),
        "941891b3323032342d30312d30315430323a30303a30309101921c91ab4575726f70652f526f6d65",
    ),
    (dt.datetime(2024, 1, 1, 2, 3, 4, 5), "941891ba323032342d30312d30315430323a30333a30342e303030303035c0c0"),
    (
        dt.time(1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1), "CET")),
        "941a91a830313a30323a30309100921d96040201c0941b03019300cd0e1000920091a3434554",
    ),
    (dt.date(2024, 1, 1), "921991ce000b4646"),
    (dt.timedelta(-1, 2, 3), "941b030193ff0203"),
    (Decimal("-1.10"), "922091a52d312e3130"),
    (uuid.UUID(int=7), "922191c41000000000000000000000000000000007"),
    (1 + 2j, "92229192cb3ff0000000000000cb4000000000000000"),
    (bytearray(b"x"), "922391c40178"),
    (deque([1], 3), "922896040201c0931091019200910192009103"),
    (Counter("aab"), "922994139102920092a161a1629200920201"),
    (OrderedDict(a=1), "922a94139101920091a16192009101"),
    (KeptColour.RED, "9331af6b6570743a4b657074436f6c6f757291a3524544"),
    (KeptMode.READ | KeptMode.WRITE, "9332ad6b6570743a4b6570744d6f646592009103"),
    (Kept(1, "x"), "9430a96b6570743a4b65707492a161a1629302019201a178"),
    (Money(3), "9333a56d6f6e657992009103"),
    (np.float32(1.5), "933891a33c663491c4040000c03f"),
    (np.arange(3), "953b920091a33c693891910391a14391c418000000000000000001000000000000000200000000000000"),
    (np.str_("x"), "9239920091a178"),
    (np.bytes_(b"x"), "923a91c40178"),
]


@pytest.mark.parametrize(("value", "written"), RECORDS_OF_ALL_KINDS, ids=lambda value: repr(value)[:30])
def test_what_stores_hold_can_be_read_for_ever(value: Any, written: str) -> None:
    """Bytes of format 1. Never change an expected value here: read the old form, and add the new one."""
    assert same(decode(bytes.fromhex(written)), value)
