"""Rows found by the hashes of their keys, whether they are in a dictionary, linked or packed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libraries.columns.kernels.row_index import RowIndex

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, 9), max_size=40)),
        st.tuples(st.just("find"), st.lists(st.integers(0, 12), min_size=1, max_size=40)),
        st.tuples(st.just("truncate"), st.floats(0, 1)),
    ),
    max_size=30,
)


@given(steps, st.sampled_from([0, 8, 1 << 62]))
def test_every_row_of_a_key_is_found_in_order(steps: list[tuple[str, object]], few: int) -> None:
    """Hashes of few values share slots; `few`: rows up to which there is a dictionary."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("libraries.columns.kernels.row_index._FEW", few)
        index, known = RowIndex(), []
        spread = 1 << 7  # some slots are shared
        for what, given_ in steps:
            if what == "add":
                assert isinstance(given_, list)
                hashes = [each * spread + each % 3 for each in given_]
                index.add(np.array(hashes, np.uint64))
                known += hashes
            elif what == "truncate":
                assert isinstance(given_, float)
                index.truncate(int(given_ * len(known)))
                del known[int(given_ * len(known)) :]
            else:
                assert isinstance(given_, list)
                wanted = [each * spread + each % 3 for each in given_]
                places, rows = index.find(np.array(wanted, np.uint64))
                expected = [(p, row) for p, each in enumerate(wanted) for row, has in enumerate(known) if has == each]
                assert list(zip(places.tolist(), rows.tolist())) == expected
            assert len(index) == len(known)


def test_rows_that_are_sought_again_and_again_are_packed_and_later_ones_linked() -> None:
    random = np.random.default_rng(5)
    index, known = RowIndex(), np.zeros(0, np.uint64)
    for size in (50_000, 10, 70_000):
        more = random.integers(0, 1 << 63, 5_000, np.uint64)[random.integers(0, 5_000, size)]
        known = np.concatenate([known, more])
        index.add(more)
        wanted = np.unique(known)
        for _ in range(5):
            places, rows = index.find(wanted)
            assert np.array_equal(rows, np.argsort(known, kind="stable"))
            assert np.array_equal(wanted[places], known[rows])
        assert index._packed > len(known) - 11
    index.truncate(60_000)
    places, rows = index.find(wanted)
    assert np.array_equal(rows, np.argsort(known[:60_000], kind="stable"))
