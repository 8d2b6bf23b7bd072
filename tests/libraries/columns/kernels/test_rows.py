"""Rows by key, against Polars' join on all rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.kernels import row_store as kernel
from libraries.columns.kernels.ordered_rows import OrderedRows
from libraries.columns.kernels.row_index import _FEW
from libraries.columns.kernels.rows import KeyedFrame, KeyedRows
from timely.data.kernels.columns import TINY

NAN = float("nan")
VALUES: dict[Any, list[Any]] = {
    pl.Int64: [-1, 0, 2**62, None],
    pl.UInt64: [1, 2**64 - 1, None],
    pl.Int8: [-128, 7, None],
    pl.Float64: [NAN, -0.0, 0.0, 0.5, None],
    pl.Float32: [NAN, -0.0, 0.0, 0.5, None],
    pl.Boolean: [True, False, None],
    pl.String: ["", "a", "a long text that is not held in the view itself", None],
    pl.Binary: [b"", b"a", None],
    pl.Date: [0, 1, None],
    pl.Datetime("ms"): [0, 1, None],
    pl.Decimal(10, 2): [1, 2, None],
}


def frames(draw: Any, kinds: list[Any], most: int) -> list[pl.DataFrame]:
    """Some frames with those kinds of keys, each row with a number of its own."""
    sizes = draw(st.lists(st.integers(0, most), min_size=1, max_size=6))
    chosen = [draw(st.lists(st.sampled_from(VALUES[kind]), min_size=1, max_size=8)) for kind in kinds]
    start, made = 0, []
    for size in sizes:
        keys = [
            pl.Series(f"k{n}", [values[(start + i * 7) % len(values)] for i in range(size)], strict=False).cast(kind)
            for n, (kind, values) in enumerate(zip(kinds, chosen, strict=True))
        ]
        made.append(pl.DataFrame([*keys, pl.Series("n", range(start, start + size), pl.Int64)]))
        start += size
    return made


@settings(max_examples=80)
@given(
    data=st.data(),
    few_hashes=st.booleans(),
    by_row=st.booleans(),
)
def test_rows_meet_as_polars_joins_them(data: Any, few_hashes: bool, by_row: bool) -> None:
    """Also where many hashes are equal, which only happens by accident or malice, and after some rows were forgotten.

    Keys are sought in a dictionary, or in a compiled table, for few rows and for many.
    """
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=2))
    keys = [f"k{n}" for n in range(len(kinds))]

    def keyed(frame: pl.DataFrame) -> KeyedFrame:
        found = KeyedFrame(frame, keys)
        if few_hashes:
            found.hashes = found.hashes & np.uint64(1)
        return found

    held = KeyedRows(keys)
    kept: list[pl.DataFrame] = []
    saved: list[tuple[list[pl.DataFrame], pl.DataFrame]] = []
    for frame in frames(data.draw, kinds, 2000 if data.draw(st.booleans()) else 20):
        held.append(keyed(frame))
        kept.append(frame)
        if data.draw(st.integers(0, 3)) == 0:
            if len(held):
                saved.append(([each for each, _ in held.between(0, len(held))], pl.concat(kept)))
            count = data.draw(st.integers(0, len(held)))
            held.truncate(count)
            kept = [pl.concat(kept).head(count)]
        asked = frames(data.draw, kinds, data.draw(st.sampled_from([9, 9, 9, 9, TINY + 99])))[0].rename({"n": "m"})
        met = held.meet(keyed(asked), by_row)
        mine, theirs = asked.with_row_index("place"), pl.concat(kept)
        if by_row:
            wanted = theirs.join(mine, on=keys, maintain_order="left_right")
        else:
            wanted = mine.join(theirs, on=keys, maintain_order="left_right")
        found = pl.DataFrame() if met is None else pl.DataFrame(met.columns).with_columns(place=pl.Series(met.places))
        assert (found.select("place", "n").rows() if len(found) else []) == wanted.select("place", "n").rows()
    saved.append(([each for each, _ in held.between(0, len(held))], pl.concat(kept)))
    for some, all_of in saved:  # what was given stays as it was, whatever was forgotten and came since
        assert pl.concat(some or [all_of.clear()]).equals(all_of)


@settings(max_examples=60)
@given(
    data=st.data(),
    sizes=st.lists(st.sampled_from([0, 1, 3, 40, TINY, 3000]), min_size=1, max_size=9),
    drift=st.sampled_from([0, 1, 50]),
    chance=st.integers(0, 999).map(np.random.default_rng),
    keys=st.sampled_from([["k"], ["k", "j"], ["j", "t"]]),
)
def test_rows_are_met_whatever_waits_and_whichever_ranges_keys_have(
    data: Any, sizes: list[int], drift: int, chance: np.random.Generator, keys: list[str]
) -> None:
    """Few keys and many, apart from those that are there and among them; nulls that come later; what was forgotten."""
    held, kept, number = KeyedRows(keys), [], 0

    def some(count: int, offset: int) -> pl.DataFrame:
        columns = {
            "k": chance.integers(0, 30, count) + offset,
            "j": chance.integers(0, 4, count).astype(np.int32),
            "t": pl.Series(["a", "b", "a text of more than twelve bytes"]).gather(chance.integers(0, 3, count)),
            "x": chance.random(count),
        }
        return pl.DataFrame(columns)

    for turn, size in enumerate(sizes):
        frame = some(size, turn * drift).with_row_index("n", offset=number)
        if data.draw(st.integers(0, 4)) == 0:
            frame = frame.with_columns(x=pl.when(pl.col("n") % 3 > 0).then("x"))
        held.append(KeyedFrame(frame, keys))
        kept.append(frame)
        number += size
        if data.draw(st.integers(0, 4)) == 0:
            number = data.draw(st.integers(0, number))
            held.truncate(number)
            kept = [pl.concat(kept).head(number)]
        for asked_for in data.draw(st.lists(st.sampled_from([1, 5, 20, TINY]), max_size=2)):
            asked = some(asked_for, data.draw(st.sampled_from([turn * drift, 0, 500]))).with_row_index("m")
            met = held.meet(KeyedFrame(asked, keys))
            wanted = asked.join(pl.concat(kept), on=keys, maintain_order="left_right")
            assert (0 if met is None else len(met.rows)) == len(wanted)
            if met is not None:
                found = pl.DataFrame(met.columns).with_columns(m=asked["m"][met.places])
                names = ["m", "n", "k", "j", "t", "x"]
                theirs = wanted.select("m", "n").join(pl.concat(kept), on="n", maintain_order="left").select(names)
                assert found.select(names).equals(theirs)
    saved = [frame for frame, _ in held.between(0, len(held))]
    assert sum(map(len, saved)) == number
    assert not saved or pl.concat(saved).equals(pl.concat(kept))


@settings(max_examples=40)
@given(data=st.data(), few_hashes=st.booleans(), by_row=st.booleans())
def test_rows_within_a_span_are_met_and_what_is_evicted_is_not_missed(
    data: Any, few_hashes: bool, by_row: bool
) -> None:
    def keyed(frame: pl.DataFrame) -> KeyedFrame:
        found = KeyedFrame(frame, ["k"])
        if few_hashes:
            found.hashes = found.hashes & np.uint64(1)
        return found

    def some(name: str) -> pl.DataFrame:
        rows = data.draw(st.lists(st.tuples(st.none() | st.integers(0, 2), st.integers(bound, 20)), max_size=9))
        frame = pl.DataFrame(rows, {"k": pl.Int64, "at": pl.Int64}, orient="row")
        return frame.with_row_index(name, offset=number)

    held, kept, bound, number = OrderedRows(["k"], "at"), [], 0, 0
    for _ in range(data.draw(st.integers(1, 8))):
        frame = some("n")
        held.append(keyed(frame))
        kept.append(frame)
        number += len(frame)
        if data.draw(st.booleans()):
            bound = data.draw(st.integers(bound, 20))
            held.evict(bound)
        if data.draw(st.integers(0, 3)) == 0:
            number = data.draw(st.integers(0, number))
            held.truncate(number)
            kept = [pl.concat(kept).head(number)]
        assert len(held) == number
        asked = some("m")
        at = asked["at"].to_numpy()
        met = held.meet(keyed(asked), (np.maximum(at - 3, bound), at + 2), by_row)
        theirs = pl.concat(kept).filter(pl.col("at") >= bound)
        pairs = asked.join(theirs, on="k").filter(pl.col("at_right").is_between(pl.col("at") - 3, pl.col("at") + 2))
        wanted = pairs.sort(["n", "m"] if by_row else ["m", "n"]).select("m", "n").rows()
        found = [] if met is None else pl.DataFrame(met.columns).with_columns(m=asked["m"][met.places])
        assert (found.select("m", "n").rows() if len(found) else []) == wanted
        saved = [row for part, _ in held.between(0, len(held)) for row in part["n"]]
        assert set(theirs["n"]) <= set(saved)
        assert saved == sorted(saved)


def test_a_large_batch_meets_what_a_small_one_does() -> None:
    """One in a compiled table, the other in a dictionary."""
    rng = np.random.default_rng(7)
    few, many = KeyedRows(["k"]), KeyedRows(["k"])
    everything = pl.DataFrame({"k": rng.integers(0, 900, _FEW), "n": range(_FEW)})
    asked = pl.DataFrame({"k": rng.integers(0, 900, 2 * TINY)})
    many.append(KeyedFrame(everything, ["k"]))
    whole = many.meet(KeyedFrame(asked, ["k"]))
    assert whole is not None
    assert whole.rows.tolist() == asked.join(everything, on="k", maintain_order="left_right")["n"].to_list()
    for at in range(0, _FEW, 300):
        few.append(KeyedFrame(everything.slice(at, 300), ["k"]))
    parts = [few.meet(KeyedFrame(asked.slice(at, 300), ["k"])) for at in range(0, len(asked), 300)]
    assert [row for part in parts if part is not None for row in part.rows] == whole.rows.tolist()


@pytest.mark.parametrize("there", [9, 2 * _FEW])
def test_nothing_is_met_when_all_is_forgotten_and_then_what_comes_anew(there: int) -> None:
    held, asked = KeyedRows(["k"]), KeyedFrame(pl.DataFrame({"k": range(TINY)}), ["k"])
    for _ in range(2):
        held.append(KeyedFrame(pl.DataFrame({"k": range(there)}), ["k"]))
        for _ in range(2):
            met = held.meet(asked)
            assert met is not None
            assert met.rows.tolist() == list(range(min(there, TINY)))
        held.truncate(0)
        assert held.meet(asked) is None


def test_a_few_keys_are_sought_among_many_rows_by_reading_and_then_in_the_table() -> None:
    held, keys = KeyedRows(["k"]), np.arange(3 * _FEW) % 1000
    for at in range(0, len(keys), 600):
        held.append(KeyedFrame(pl.DataFrame({"k": keys[at : at + 600]}), ["k"]))
        for wanted in ([7], [999, 7], list(range(20))):
            met = held.meet(KeyedFrame(pl.DataFrame({"k": wanted}), ["k"]))
            found = [] if met is None else met.rows.tolist()
            assert found == [row for key in wanted for row in np.flatnonzero(keys[: at + 600] == key)]


def test_pieces_are_few_and_what_is_copied_little() -> None:
    held = KeyedRows(["k"])
    for at in range(3000):
        held.append(KeyedFrame(pl.DataFrame({"k": [at, at], "t": ["a", "b"]}), ["k"]))
        assert held.pieces() <= 1 + np.log(2 * at + 2) / np.log(kernel._STEP)
    assert len(held) == 6000


def test_columns_of_other_types_are_widened_and_keys_of_other_types_refused() -> None:
    held = KeyedRows(["k"])
    held.append(KeyedFrame(pl.DataFrame({"k": [1, 2], "v": [1, 2]}, schema_overrides={"v": pl.Int32}), ["k"]))
    held.append(KeyedFrame(pl.DataFrame({"v": [1.5], "k": [2]}), ["k"]))
    met = held.meet(KeyedFrame(pl.DataFrame({"k": [2]}), ["k"]))
    assert met is not None
    assert pl.DataFrame(met.columns).rows() == [(2, 2.0), (2, 1.5)]
    for value in (1, 2.5):
        held.append(KeyedFrame(pl.DataFrame({"k": [2], "v": [value]}), ["k"]))
    met = held.meet(KeyedFrame(pl.DataFrame({"k": [2]}), ["k"]))
    assert met is not None
    assert pl.DataFrame(met.columns).rows() == [(2, 2.0), (2, 1.5), (2, 1.0), (2, 2.5)]
    with pytest.raises(TypeError, match="is Int64 on one side and String on the other"):
        held.meet(KeyedFrame(pl.DataFrame({"k": ["2"]}), ["k"]))
