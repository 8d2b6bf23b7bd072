"""Edges on which the failed make nothing again: D̄ = ∅ for those, and for the living what lies behind their low-watermark."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.fixed_point.solve import LIVE, AnyFrontier, CheckpointChain, Live, PhysicalEdge, solve
from recovery.metadata import Bound
from tests.recovery.fixed_point.histories import run_history
from tests.recovery.fixed_point.systems import graph, losing, restorable, survivors
from tests.recovery.fixed_point.test_solve import equals_the_literal
from timely.time import Summary

SAME = Summary.identity(1)
LOST, ORDINARY = (PhysicalEdge(0, 1, SAME, lossy=lossy) for lossy in (True, False))
seeds = st.integers(0, 2**40)


@given(seeds)
def test_equals_the_literal_fixed_point(seed: int) -> None:
    random = Random(seed)
    for _ in range(3):
        g = losing(random, graph(random, random.randrange(1, 7)))
        equals_the_literal(g, [restorable(random, g, p, live=True) for p in range(len(g.depths))])
        g, processors, repeats = survivors(random, g)
        equals_the_literal(g, processors, repeats)


@pytest.mark.xdist_group("compiled watermarks")
@pytest.mark.parametrize("compiled", [False, True])
@given(seeds)
def test_low_watermarks_are_the_solution_after_every_report(compiled: bool, seed: int) -> None:
    run_history(seed, compiled, with_literal=not compiled, lossy=0.5)
    run_history(seed, compiled, with_literal=False, fewest=11, most=14, lossy=0.5)


def test_who_has_failed_stays_ahead_of_its_receiver() -> None:
    """It comes back empty at 7, though its receiver has no more than 3: what lies between is a gap."""
    receiver = CheckpointChain([((3,), ())])
    assert solve([LOST], [AnyFrontier((7,)), receiver]) == [(7,), (3,)]
    assert solve([ORDINARY], [AnyFrontier((7,)), receiver]) == [(3,), (3,)]


def test_nobody_keeps_what_the_failed_take_back() -> None:
    assert solve([LOST], [AnyFrontier((7,)), CheckpointChain([((3,), ()), ((9,), ())])]) == [(7,), (3,)]


def sender(low: Bound) -> Live:
    return Live((9,), {}, (9,), ((10,),), (False,), floor=low)


def test_the_living_make_again_what_a_receiver_lacks() -> None:
    assert solve([LOST], [sender((2,)), CheckpointChain([((3,), ())])]) == [(3,), (3,)]


def test_the_living_do_not_go_below_their_low_watermark() -> None:
    """It did not wait for the receiver, whose loss is a gap."""
    assert solve([LOST], [sender((5,)), CheckpointChain([((3,), ())])], [(5,), (0,)]) == [(5,), (3,)]


def test_the_living_stay_where_the_receiver_lacks_nothing_that_they_could_make() -> None:
    assert solve([LOST], [sender((10,)), CheckpointChain([((3,), ())])]) == [LIVE, (3,)]
