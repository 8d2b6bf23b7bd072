"""Sums by sign, against `math.fsum` of what is left."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libraries.columns.kernels import sketches
from libraries.columns.kernels.signed import signed, with_special
from timely.data.kernels.columns import numbers
from timely.data.sums.terms import rounded, sums
from timely.errors import CodecError

floats = st.floats() | st.floats(-10, 10) | st.sampled_from([5e-324, -(2.0**1023), 1e308, 2.0**-1022, float("inf")])


def sum_of(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except ValueError:  # infinities of both signs
        return math.nan
    except OverflowError:  # on the way: it does not tell of the whole
        return math.nan


@given(
    st.lists(st.tuples(st.none() | floats, st.integers(0, 2), st.booleans(), st.booleans()), max_size=30),
    st.integers(0, 99),
)
def test_a_sum_is_that_of_what_is_left_however_it_was_put_together(
    given: list[tuple[float | None, int, bool, bool]], seed: int
) -> None:
    """Each number comes, and some are taken back, in one of two batches, in any order."""
    came = [(value, group, 1, batch) for value, group, _, batch in given]
    gone = [(value, group, -1, batch) for value, group, back, batch in given if back]
    both = [*came, *gone]
    order = np.random.default_rng(seed).permutation(len(both))
    finite, special = [], []
    for batch in (False, True):
        of = [both[at] for at in order if both[at][3] == batch]
        column = pa.array([value for value, *_ in of], pa.float64())
        signs = pa.array([sign for _, _, sign, _ in of], pa.int64())
        groups = np.array([group for _, group, _, _ in of], np.intp)
        added = signed(column, signs, "sum")
        there = added.is_valid().to_numpy(zero_copy_only=False)
        finite.append(sums([groups[there]], 3, [numbers(added.drop_null())]))
        observed = signed(column, signs, "special")
        there = observed.is_valid().to_numpy(zero_copy_only=False)
        counted = observed.drop_null().to_numpy()
        if seed % 2:
            special.append(sketches.merged(groups[there], 3, sketches.of_rows(counted)))
        else:
            special.append(sketches.of_groups(groups[there], 3, counted))
    total = sums([np.arange(3)] * 2, 3, finite)
    whole = sketches.merged(np.tile(np.arange(3), 2), 3, np.concatenate(special))
    found = with_special(rounded(total), whole).tolist()
    for group in range(3):
        left = [value for value, of, back, _ in given if of == group and not back and value is not None]
        if all(map(math.isfinite, left)):
            assert whole[group] is None
        expected = sum_of(left)
        if not (math.isnan(expected) and all(map(math.isfinite, left))):
            assert found[group] == expected or (math.isnan(found[group]) and math.isnan(expected))


@pytest.mark.parametrize(
    ("values", "right"),
    [
        ([1e308, 1e308, -1e308], 1e308),
        ([1e308, 1e308], math.inf),
        ([-1e308, -1e308], -math.inf),
        ([5e-324, -5e-324], 0.0),
        ([1.0, 2.0**-53, 2.0**-106], 1.0 + 2.0**-52),
        ([-0.0], 0.0),
    ],
)
def test_a_sum_is_rounded_once(values: list[float], right: float) -> None:
    added = signed(pa.array(values), pa.array(np.ones(len(values), np.int64)), "sum")
    assert rounded(sums([np.zeros(len(values), np.intp)], 1, [numbers(added)])).tolist() == [right]


def test_bytes_that_count_no_special_values_are_refused() -> None:
    for pairs in ([(3, 1)], [(-1, 1)], [(2**31 - 1, 1)]):
        held = np.array([np.array(pairs, "<i8").tobytes()], object)
        with pytest.raises(CodecError, match="damaged sum"):
            with_special(np.zeros(1), held)
