"""The ends of epochs that a clock has cut: joined as they are told, and of use only where none is missing."""

from __future__ import annotations

import pytest

from recovery.epoch_ends import EpochEnds, KnownEnds, decode_ends, encode_ends
from timely.errors import ProtocolError


def ends(begin: int, upto: int, local_only: bool = False) -> EpochEnds:
    """Of worker 1's source 0, whose epochs end at ten times their number and nine."""
    return EpochEnds(1, 0, begin, upto, (("part", tuple((e, 10 * e + 9) for e in range(begin, upto))),), local_only)


def test_what_is_told_adds_up_in_whatever_pieces_it_comes() -> None:
    known = KnownEnds()
    for begin, upto in ((0, 2), (2, 5), (1, 4), (3, 7), (3, 3)):
        known.hear(ends(begin, upto))
    assert known.all() == (ends(0, 7),)
    known.collect((1, 0), 4)
    assert known.all() == (ends(4, 7),)
    known.collect((1, 0), 9)
    known.hear(ends(7, 8))
    assert known.all() == (ends(7, 8),)


def test_epochs_that_adjoin_leave_no_gap_in_whatever_order_they_come() -> None:
    assert ends(2, 5).joined(ends(0, 2)) == ends(0, 2).joined(ends(2, 5)) == ends(0, 5)


def test_ends_are_in_the_order_of_epochs_whatever_their_positions() -> None:
    """A position is whatever a source makes of it: that of a later epoch need not be greater, nor can it be compared."""
    one = EpochEnds(1, 0, 0, 1, (("part", ((0, {"file": "b"}),)),))
    two = EpochEnds(1, 0, 1, 2, (("part", ((1, {"file": "a"}),)),))
    both = EpochEnds(1, 0, 0, 2, (("part", ((0, {"file": "b"}), (1, {"file": "a"}))),))
    assert one.joined(two) == two.joined(one) == both


def test_of_what_one_process_alone_can_read_again_a_part_is_enough() -> None:
    for first, second in ((True, False), (False, True)):
        assert ends(0, 2, local_only=first).joined(ends(2, 4, local_only=second)) == ends(0, 4, local_only=True)
    assert ends(0, 2).joined(ends(2, 4)) == ends(0, 4)


def test_what_is_known_is_told_in_one_order() -> None:
    sources = [EpochEnds(worker, p, 0, 1) for worker in (0, 1) for p in (0, 3)]
    assert KnownEnds(reversed(sources)).all() == tuple(sources)


def test_behind_a_gap_begins_what_is_known() -> None:
    known = KnownEnds([ends(0, 3), ends(5, 7)])
    assert known.all() == KnownEnds([ends(5, 7), ends(0, 3)]).all() == (ends(5, 7),)
    assert [known.repeats((1, 0), low, gone=True) for low in (0, 4, 5, 6)] == [0, 0, 7, 7]
    assert known.repeats((0, 0), 9, gone=True) == 0


def test_nobody_else_reads_again_what_only_one_process_can() -> None:
    known = KnownEnds([ends(0, 3, local_only=True)])
    assert (known.repeats((1, 0), 0, gone=False), known.repeats((1, 0), 0, gone=True)) == (3, 0)


def test_a_source_that_is_read_again_from_before_cuts_other_epochs_behind_that() -> None:
    known = KnownEnds([ends(3, 6), EpochEnds(0, 0, 3, 6)])
    known.decided([[(3,)], [(2,)]])
    assert [each.key for each in known.all()] == [(0, 0)]
    known.decided([[None], [None]])
    assert [each.key for each in known.all()] == [(0, 0)]


def test_they_travel_as_bytes_and_damage_is_seen() -> None:
    told = (ends(0, 3), EpochEnds(0, 1, 0, 9, local_only=True))
    assert decode_ends(encode_ends(told)) == told
    with pytest.raises(ProtocolError, match="ends of epochs"):
        decode_ends(encode_ends(told)[:-1])
