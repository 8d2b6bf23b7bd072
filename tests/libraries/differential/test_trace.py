"""Traces give the changes of the keys, or of the pairs, that are asked for, wherever in their runs they lie."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libraries.differential.trace import Trace
from tests.libraries.differential.histories import handled

NUMBERS = {
    "near": st.integers(-3, 9),
    "far": st.sampled_from([-(1 << 62), -7, 0, 3, 4, 1 << 40, (1 << 63) - 2, (1 << 63) - 1]),
}


@pytest.mark.parametrize("kind", NUMBERS)
@given(st.data())
def test_what_is_asked_for_is_found(kind: str, data: st.DataObject) -> None:
    number = NUMBERS[kind]
    changes = st.dictionaries(st.tuples(number, number), st.sampled_from([-1, 1, 2]), max_size=9)
    trace, held = Trace(), Counter[tuple[int, int, tuple[int, ...]]]()
    asked = np.array(sorted(data.draw(st.sets(st.tuples(number, number)))), np.int64).reshape(-1, 2)
    keys = np.unique(asked[:, 0])
    with handled(-1):
        for epoch, found in enumerate(data.draw(st.lists(changes, min_size=1, max_size=6))):
            one_by_one = data.draw(st.booleans())
            if one_by_one:
                for (key, value), by in found.items():
                    trace.add_one(key, value, (epoch,), by)
            else:
                rows = np.array(sorted((*pair, by) for pair, by in found.items()), np.int64).reshape(-1, 3)
                trace.add(rows[:, 0], rows[:, 1], (epoch,), rows[:, 2])
            held.update({(*pair, (epoch,)): by for pair, by in found.items()})
            for wanted, values in ((keys, None), (asked[:, 0], asked[:, 1])):
                got = Counter[tuple[int, int, tuple[int, ...]]]()
                history = trace.history(wanted, values)
                for of, value, at, by in zip(
                    *map(list, (history.key, history.value, history.at, history.diff)), strict=True
                ):
                    assert values is None or values[of] == value
                    got[int(wanted[of]), int(value), history.times[at]] += int(by)
                want = {*wanted.tolist()} if values is None else {*map(tuple, asked.tolist())}
                assert dict(got) == {
                    each: by for each, by in held.items() if (each[0] if values is None else each[:2]) in want
                }
            for key in keys.tolist():
                assert Counter(trace.changes(key)).keys() == {(v, t, by) for (k, v, t), by in held.items() if k == key}
