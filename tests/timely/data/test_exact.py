"""Exact sums of floats, against `math.fsum` of what is left."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.data.kernels import exact, sketches
from timely.errors import CodecError

floats = st.floats() | st.floats(-10, 10) | st.sampled_from([5e-324, -(2.0**1023), 1e308, 2.0**-1022, float("inf")])


def sum_of(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except ValueError:  # infinities of both signs
        return math.nan
    except OverflowError:  # on the way: it does not tell of the whole
        return math.nan


@given(st.lists(st.tuples(floats, st.integers(0, 2), st.booleans(), st.booleans()), max_size=30), st.integers(0, 99))
def test_a_sum_is_that_of_what_is_left_however_it_was_put_together(
    numbers: list[tuple[float, int, bool, bool]], seed: int
) -> None:
    """Each number comes, and some are taken back, in one of two batches, in any order."""
    came = [(value, group, 1, batch) for value, group, _, batch in numbers]
    gone = [(value, group, -1, batch) for value, group, back, batch in numbers if back]
    both = [*came, *gone]
    order = np.random.default_rng(seed).permutation(len(both))
    parts = []
    for batch in (False, True):
        of = [both[at] for at in order if both[at][3] == batch]
        values, signs = np.array([each[0] for each in of], float), np.array([each[2] for each in of], np.int64)
        observed = exact.observations(values, signs)
        groups = np.array([each[1] for each in of], np.intp)
        if seed % 2:
            parts.append(sketches.merged(groups, 3, exact.of_rows(observed)))
        else:
            parts.append(exact.of_groups(groups, 3, observed))
    whole = sketches.merged(np.tile(np.arange(3), 2), 3, np.concatenate(parts))
    found = exact.totals(whole).tolist()
    for group in range(3):
        left = [value for value, of, back, _ in numbers if of == group and not back]
        if not left:
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
    observed = exact.observations(np.array(values), np.ones(len(values), np.int64))
    assert exact.totals(exact.of_groups(np.zeros(len(values), np.intp), 1, observed)).tolist() == [right]


def test_bytes_that_are_no_sum_are_refused() -> None:
    for pairs in ([(103, 1)], [(-1, 1)], [(2**31 - 1, 1)]):
        held = np.array([np.array(pairs, "<i8").tobytes()], object)
        with pytest.raises(CodecError, match="damaged sum"):
            exact.totals(held)
