"""Bounds up to which sinks have published: they rise only, and the journal hears of them when they have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recovery.checkpoint.published import PublishedBounds
from recovery.checkpoint.records import PUBLISHED, Published, record_of
from recovery.store.journal import Journal
from recovery.store.segments import Section, decode_segment
from tests.recovery.store.owners import Owner, memory_disk


class _Heard:
    """A journal that writes at once, and what it was told."""

    def __init__(self) -> None:
        self.journal: Journal = Owner(memory_disk()).journal
        self.bounds = PublishedBounds(self.journal)

    def written(self) -> list[Published]:
        """The bounds that went into the segment that is sealed now."""
        sealed = self.journal.seal()
        if sealed is None:
            return []
        self.journal.stored(sealed[0])
        sections: list[Section] = decode_segment(b"".join(sealed[1]))[1]
        return [record for each in sections if isinstance(record := record_of(each.head), Published)]


rises = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=12)


@given(rises)
def test_they_hold_what_came_before_the_highest_bound_of_each_processor(told: list[tuple[int, int]]) -> None:
    heard = _Heard()
    for p, bound in told:
        heard.bounds.rise(p, (bound,))
    for p in range(3):
        highest = max((bound for q, bound in told if q == p), default=0)
        assert [heard.bounds.holds(p, (time,)) for time in range(7)] == [time < highest for time in range(7)]


@given(rises, rises)
def test_the_journal_has_them_once_each_time_they_have_risen(
    first: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    heard, model = _Heard(), dict[int, tuple[int, ...]]()
    for told in (first, more):
        before = dict(model)
        for p, bound in told:
            heard.bounds.rise(p, (bound,))
            model[p] = max((bound,), model.get(p, (0,)))
        heard.bounds.save()
        assert heard.written() == ([Published(tuple(sorted(model.items())))] if model != before else [])
        heard.bounds.save()
        assert heard.written() == []
    heard.bounds.save(again=True)
    assert heard.written() == [Published(tuple(sorted(model.items())))]
    assert PUBLISHED in heard.journal


def test_what_an_earlier_incarnation_wrote_is_taken_over_and_not_written_again() -> None:
    heard = _Heard()
    heard.bounds.load(Published(((0, (3,)), (1, (2,)))))
    heard.bounds.load(Published(((0, (1,)),)))
    assert heard.bounds.holds(0, (2,))
    assert not heard.bounds.holds(1, (2,))
    heard.bounds.save()
    assert heard.written() == []
    heard.bounds.rise(1, (5,))
    heard.bounds.save()
    assert heard.written() == [Published(((0, (3,)), (1, (5,))))]
