"""Gaps of a decision: which epochs of which outputs are incomplete, by what came back empty and what nobody makes again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from monitor.coordination.options import Options
from monitor.coordination.timeline import gap_event
from recovery.incomplete import Gap, merged
from recovery.layout import Layout
from recovery.metadata import NEVER, Bound, Xi
from recovery.protocol import InMemory
from tests.recovery.layouts import layout
from timely.time import INF

EMPTY, TOTALS, PLAIN = "empty", "totals", "plain"


def made(kind: str, workers: int = 1, spread: bool = False) -> Layout:
    """A source, what comes back empty (or keeps nothing), behind a lossy edge what is of a kind, and a sink."""
    nodes = f"read source, trend any, {kind} any, out sink"
    found = layout(nodes, f"read>trend, trend{'=' * spread}>{kind}, {kind}>out", workers, kept=spread)
    infos = list(found.processors)
    infos[1] = replace(infos[1], comes_back_empty=True, remembers=True, repeats=False)
    infos[2] = replace(infos[2], remembers=kind == TOTALS, repeats=False)
    edges = [replace(edge, lossy=edge.source == 1) for edge in found.edges]
    return replace(found, processors=tuple(infos), edges=tuple(edges))


def held(upto: int, since: int = 0, kept: Sequence[Sequence[int]] = ()) -> InMemory:
    bound = (upto,)
    return InMemory(bound, bound, (bound,), (bound,), (since,), tuple(tuple((at,) for at in of) for of in kept))


def gaps(options: Options, bounds: Sequence[Bound | None], memory: dict[int, list[InMemory]]) -> tuple[Gap, ...]:
    return options.gaps([bounds], memory)


@pytest.mark.parametrize(("kind", "end"), [(PLAIN, NEVER), (TOTALS, NEVER)])
def test_what_comes_back_empty_is_incomplete_from_there_on(kind: str, end: int) -> None:
    assert gaps(Options(made(kind)), [(5,)] * 4, {}) == (Gap(3, 5, end),)


def test_what_begins_has_lost_nothing() -> None:
    assert gaps(Options(made(TOTALS)), [(0,)] * 4, {}) == ()


def test_the_living_have_their_state_down_to_where_they_came_back() -> None:
    options = Options(made(TOTALS))
    memory = {0: [held(9), held(9, since=4), held(9), held(9)]}
    assert gaps(options, [(4,)] * 4, memory) == ()
    assert gaps(options, [(3,)] * 4, memory) == (Gap(3, 3),)
    assert gaps(options, [None] * 4, memory) == ()


def stateless(kind: str, workers: int = 1, spread: bool = False) -> Layout:
    found = made(kind, workers, spread)
    infos = list(found.processors)
    infos[1] = replace(infos[1], comes_back_empty=False, remembers=False)
    return replace(found, processors=tuple(infos))


@pytest.mark.parametrize(("kind", "end"), [(PLAIN, 7), (TOTALS, NEVER)])
def test_what_the_failed_had_sent_is_missing(kind: str, end: int) -> None:
    assert gaps(Options(stateless(kind)), [(8,), (7,), (5,), (5,)], {}) == (Gap(3, 5, end),)


def test_what_the_living_do_not_go_back_for_is_missing() -> None:
    options = Options(stateless(PLAIN), [[(6,), (6,), (2,), (2,)]])
    memory = {0: [held(9)] * 4}
    assert gaps(options, [(6,), (6,), (5,), (5,)], memory) == (Gap(3, 5, 6),)
    assert gaps(options, [None, None, (6,), (6,)], memory) == ()


def test_what_a_living_sender_keeps_is_not_missing() -> None:
    options = Options(stateless(PLAIN, 2, spread=True), [[(6,), (6,), (2,), (2,)]] * 2)
    for kept, expected in ((5, ()), (6, (Gap(3, 5, 6),))):
        memory = {0: [held(9), held(9, kept=[[0, kept]]), held(9), held(9)]}
        decided = [[None] * 4, [(6,), (5,), (5,), (5,)]]
        assert options.gaps(decided, memory) == expected


def test_a_living_receiver_lacks_what_had_not_come_when_its_sender_failed() -> None:
    options = Options(stateless(PLAIN, 2, spread=True))
    memory = {0: [held(9), held(9, kept=[[0, 0]]), held(4), held(9)]}
    assert options.gaps([[None] * 4, [(6,)] * 4], memory) == (Gap(3, 4, 6),)


def test_gaps_add_up() -> None:
    assert merged([Gap(3, 5), Gap(3, 2, 4), Gap(3, 9), Gap(3, 4, 4)]) == (Gap(3, 2, 4), Gap(3, 5))


@pytest.mark.parametrize(
    ("gap", "first", "last"), [(Gap(3, 5, 7), 5, 6), (Gap(3, 5), 5, None), (Gap(3, INF, NEVER), None, None)]
)
def test_a_gap_is_told_with_its_first_and_last_epoch(gap: Gap, first: int | None, last: int | None) -> None:
    assert gap_event(made(PLAIN), gap) == {"output": "out", "first": first, "last": last}


def test_low_watermarks_do_not_wait_behind_a_lossy_edge() -> None:
    """What is in front is acknowledged, whatever is behind."""
    options = Options(stateless(PLAIN))
    options.complete(0, ((9,),))
    options.join(0, [Xi(0, (6,), ((6,),))])
    assert options.raise_watermarks()
    assert options.watermarks == (((6,), (6,), (0,), (0,)),)
