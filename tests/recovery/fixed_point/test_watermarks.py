"""The low-watermarks: equal to the solution from scratch after every report, and cheap when little can change."""

from __future__ import annotations

import subprocess
import sys
import time
from random import Random
from types import FrameType
from typing import Any as AnyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.errors import RecoveryError, ReportError
from recovery.fixed_point import incremental
from recovery.fixed_point.incremental import Report, WatermarkSolver
from recovery.fixed_point.solve import PhysicalEdge
from recovery.metadata import MORE, Bound
from tests.recovery.fixed_point.histories import run_history
from tests.recovery.fixed_point.systems import PORTS
from timely.time import Summary

SAME = Summary.identity(1)
LOOP = Summary.identity(2)
seeds = st.integers(0, 2**40)
pytestmark = pytest.mark.xdist_group("compiled watermarks")  # compiling takes longer than running
compiled_or_not = pytest.mark.parametrize("compiled", [False, True], ids=["general", "compiled"])


@given(seeds)
def test_equals_the_solution_from_scratch_after_every_report(seed: int) -> None:
    for offset in range(4):
        run_history(seed + offset, compiled=False, with_literal=False)


@pytest.mark.parametrize(
    ("fewest", "most"), [(11, 16), pytest.param(21, 26, marks=pytest.mark.check)]
)  # a tenth of them: one report, or two
@compiled_or_not
@given(seeds)
def test_among_many_a_report_finds_another_witness_and_the_solution_is_that_from_scratch(
    compiled: bool, fewest: int, most: int, seed: int
) -> None:
    run_history(seed, compiled, with_literal=False, fewest=fewest, most=most)


@given(seeds)
def test_compiled_equals_the_solution_from_scratch_after_every_report(seed: int) -> None:
    for offset in range(2):
        run_history(seed + offset, compiled=True, with_literal=False)


@given(seeds)
def test_equals_the_literal_fixed_point_after_every_report(seed: int) -> None:
    run_history(seed, compiled=False, with_literal=True)


@given(seeds)
@settings(max_examples=settings().max_examples // 4)
def test_large_batches_are_taken_as_arrays_and_give_the_same(seed: int) -> None:
    random = Random(seed)
    size = 300
    edges = [
        PhysicalEdge(random.randrange(size), random.randrange(size), SAME, random.randrange(PORTS)) for _ in range(600)
    ]
    chains = [random.random() < 0.7 for _ in range(size)]
    kinds = [(1, chain) for chain in chains]
    compiled, general = (WatermarkSolver(kinds, edges, compiled=each) for each in (True, False))
    now = [0] * size
    for _ in range(4):
        batch: list[Report] = []
        for p in range(size):
            if random.random() < 0.97:
                now[p] += random.randrange(1, 3)
                lost = tuple((now[p] if (p + port) % 3 else 0,) for port in range(PORTS))
                batch.append((p, (now[p],), lost if chains[p] else ()))
        assert sorted(compiled.tick(batch)) == sorted(general.tick(batch))
        assert compiled.tick(batch) == []


@pytest.mark.check
@given(seeds)
@settings(max_examples=settings().max_examples // 4)
def test_over_a_long_history_with_laggards_compiled_gives_the_same(seed: int) -> None:
    """Chains get long while they wait, and short again; among more than ten a single report looks for another witness."""
    random = Random(seed)
    size = random.randrange(11, 16)
    edges = [
        PhysicalEdge(random.randrange(size), random.randrange(size), SAME, random.randrange(PORTS)) for _ in range(20)
    ]
    kinds = [(1, random.random() < 0.8) for _ in range(size)]
    compiled, general = (WatermarkSolver(kinds, edges, compiled=each) for each in (True, False))
    now = [0] * size
    for _ in range(12):
        lag = set(random.sample(range(size), 2))
        for _ in range(random.choice([3, 12])):
            batch: list[Report] = []
            for p in range(size):
                if p not in lag and random.random() < 0.8:
                    now[p] += random.randrange(1, 3)
                    lost = tuple((now[p] if (p + port) % 4 == 0 else 0,) for port in range(PORTS))
                    batch.append((p, (now[p],), lost if kinds[p][1] else ()))
            random.shuffle(batch)
            for part in ([each] for each in batch) if random.random() < 0.5 else [batch]:
                assert sorted(compiled.tick(part)) == sorted(general.tick(part))
    assert compiled.values() == general.values()


def test_misaligned_checkpoints_rise_only_when_the_one_that_fits_is_there() -> None:
    """q at 3 needs p at 5, and p at 5 has discarded what q needs up to 5: neither rises until q has 5."""
    edges = [PhysicalEdge(0, 1, SAME), PhysicalEdge(1, 0, SAME)]
    for compiled in (False, True):
        watermarks = WatermarkSolver([(1, True)] * 2, edges, compiled=compiled)
        assert watermarks.report(0, (5,), ((5,),)) == []
        assert watermarks.report(1, (3,), ((0,),)) == []
        assert sorted(watermarks.report(1, (5,), ((0,),))) == [(0, (5,)), (1, (5,))]


def test_a_chain_that_goes_down_round_a_loop_stops_at_the_first_checkpoint_that_fits() -> None:
    """Of the third iteration it has logged what it sent; of later ones not, so each needs what the loop kept of it."""
    edges = [PhysicalEdge(0, 1, LOOP), PhysicalEdge(1, 0, Summary.feedback(2))]
    watermarks = WatermarkSolver([(2, True), (2, False)], edges)
    saved: list[Report] = [(0, (0, i), ((0, i if i > 3 else 0),)) for i in range(1, 40)]
    watermarks.tick([(1, (0, 50), ()), *saved])
    assert watermarks.values() == [(0, 3), (0, 2)]


# ---------------------------------------------------------------------------------------------- reports


@compiled_or_not
def test_reports_out_of_order_are_rejected(compiled: bool) -> None:
    watermarks = WatermarkSolver(
        [(1, True), (1, False), (1, True)], [PhysicalEdge(0, 1, SAME), PhysicalEdge(1, 2, SAME)], compiled=compiled
    )
    assert issubclass(ReportError, RecoveryError)
    watermarks.report(0, (5,), ((2,),))
    with pytest.raises(ReportError, match=r"processor 0 reported \(4,\) .* after \(5,\)"):
        watermarks.report(0, (4,), ((2,),))
    with pytest.raises(ReportError, match=r"processor 0 reported \(5,\)"):
        watermarks.report(0, (5,), ((3,),))
    with pytest.raises(ReportError, match="discarded less"):
        watermarks.report(0, (6,), ((1,),))
    with pytest.raises(ReportError, match="discarded less"):
        watermarks.report(0, (6,))
    assert watermarks.report(0, (5,), ((2,),)) == []
    watermarks.completed(1, (7,))
    with pytest.raises(ReportError, match=r"processor 1 reported \(6,\)"):
        watermarks.completed(1, (6,))
    assert watermarks.completed(1, (7,)) == []  # again, while it waits for the processor before it
    watermarks.report(2, (3,))
    assert watermarks.values() == [(5,), (3,), (3,)]


@compiled_or_not
def test_reports_of_another_kind_domain_or_dataflow_are_rejected(compiled: bool) -> None:
    watermarks = WatermarkSolver([(1, True), (1, False)], [PhysicalEdge(0, 1, SAME)], compiled=compiled)
    with pytest.raises(ReportError, match="restores its checkpoints only"):
        watermarks.completed(0, (1,))
    with pytest.raises(ReportError, match="saves no checkpoints"):
        watermarks.report(1, (1,))
    with pytest.raises(ReportError, match="not one of the 2"):
        watermarks.tick([(2, (1,), ())])
    with pytest.raises(ReportError, match="coordinate"):
        watermarks.completed(1, (1, 0))
    with pytest.raises(ReportError, match="time domains"):
        watermarks.report(0, (1,), ((1, 0),))
    assert watermarks.values() == [(0,), (0,)]


@compiled_or_not
def test_what_came_before_a_wrong_report_counts(compiled: bool) -> None:
    watermarks = WatermarkSolver([(1, True), (1, True)], [PhysicalEdge(0, 1, SAME)], compiled=compiled)
    with pytest.raises(ReportError):
        watermarks.tick([(0, (2,), ()), (1, (3,), ()), (1, (2,), ()), (0, (4,), ())])
    assert watermarks.values() == [(2,), (0,)]
    assert watermarks.changed() == [(0, (2,))]
    assert watermarks.report(0, (3,)) == [(0, (3,)), (1, (3,))]


@compiled_or_not
def test_a_large_batch_with_a_wrong_report_is_rejected_too(compiled: bool) -> None:
    size = 400
    watermarks = WatermarkSolver(
        [(1, True)] * size, [PhysicalEdge(p, p + 1, SAME) for p in range(size - 1)], compiled=compiled
    )
    watermarks.tick([(p, (5,), ((p % 4,),)) for p in range(size)])
    with pytest.raises(ReportError, match=r"processor 7 .* discarded less"):
        watermarks.tick([(p, (6,), ((p % 4 if p != 7 else 2,),)) for p in range(size)])
    assert watermarks.values() == [(6,)] * 7 + [(5,)] * (size - 7)


def test_a_report_that_is_no_larger_set_than_the_last_is_rejected_though_its_tuple_is_larger() -> None:
    watermarks = WatermarkSolver([(2, True)], [])
    watermarks.report(0, (3, 7, MORE, 5))
    with pytest.raises(ReportError, match="must come in order"):
        watermarks.report(0, (4, 2))
    assert watermarks.report(0, (4, 5)) == [(0, (4, 5))]


@compiled_or_not
def test_a_port_without_an_edge_discards_nothing_unless_told(compiled: bool) -> None:
    watermarks = WatermarkSolver([(1, True), (1, True)], [PhysicalEdge(0, 1, SAME, port=1)], compiled=compiled)
    watermarks.report(0, (1,))
    watermarks.report(0, (2,), ((0,), (0,)))
    assert watermarks.report(1, (2,)) == [(1, (2,))]


def test_a_chain_begins_at_any_set_and_others_at_a_prefix() -> None:
    at = (3, 7, MORE, 5)
    watermarks = WatermarkSolver([(2, True), (2, False)], [], start=[at, at])
    assert watermarks.values() == [at, (3, 7)]


def test_more_of_later_epochs_is_no_news_of_a_processor_that_restores_prefixes() -> None:
    watermarks = WatermarkSolver([(2, False)], [])
    assert watermarks.completed(0, (3, 7)) == [(0, (3, 7))]
    touched = watermarks.touched
    assert watermarks.completed(0, (3, 7, MORE, 5)) == []
    assert watermarks.touched == touched


# ---------------------------------------------------------------------------------------------- cost


def layered(size: int, degree: int, seed: int = 1) -> list[PhysicalEdge]:
    """Every processor reads from earlier ones nearby."""
    random = Random(seed)
    return [PhysicalEdge(random.randrange(max(0, p - 40), p), p, SAME) for p in range(1, size) for _ in range(degree)]


def aligned(p: int, epoch: int) -> Report:
    """Every fourth processor logs nothing."""
    return p, (epoch,), ((epoch if p % 4 == 0 else 0,),)


@compiled_or_not
def test_a_laggard_does_not_make_reports_of_others_dear(compiled: bool) -> None:
    size, laggard = 1_000, 500
    watermarks = WatermarkSolver([(1, True)] * size, layered(size, 3), compiled=compiled)
    watermarks.tick([aligned(p, 1) for p in range(size)])
    order = [p for p in range(size) if p != laggard]
    Random(3).shuffle(order)
    for epoch in range(2, 6):
        waiting = [p for p in order if watermarks.value(p) < (epoch - 1,)]
        others, behind = [], []
        for p in order:
            before = watermarks.touched
            watermarks.report(*aligned(p, epoch))
            (behind if p in waiting else others).append(watermarks.touched - before)
        assert sum(others) / len(order) < 20
        # Who waits for the laggard hangs in its tree: a report that cannot matter yet is only kept.
        assert max(behind, default=1) == 1
        assert epoch == 2 or len(behind) > size // 3
    assert watermarks.value(size - 1) < (5,)
    watermarks.tick([aligned(laggard, epoch) for epoch in range(2, 6)])
    assert set(watermarks.values()) == {(5,)}


@pytest.mark.parametrize("depth", [1, 2])
def test_any_processors_have_no_option_for_each_epoch(depth: int) -> None:
    size = 50
    edges = [PhysicalEdge(p, p + 1, Summary.identity(depth)) for p in range(size - 1)]
    watermarks = WatermarkSolver([(depth, False)] * size, edges)
    far: Bound = (10**15, *(10**15 for _ in range(depth - 1)))
    for p in range(size):
        watermarks.completed(p, far)
    assert set(watermarks.values()) == {far}
    assert watermarks.touched < 10 * size


def lines_run(work: AnyType) -> int:
    """Lines of Python that run, those of comprehensions once for each element."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> AnyType:
        nonlocal count
        count += 1
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(previous)
    return count


def lines_of_a_report(size: int, after: AnyType = lambda watermarks: None) -> int:
    """The cost of a report while everybody waits for processor 0."""
    watermarks = WatermarkSolver([(1, True)] * size, layered(size, 3))
    for epoch in (1, 2):
        watermarks.tick([aligned(p, epoch) for p in range(1, size)])

    def work() -> None:
        watermarks.report(*aligned(size // 2, 3))
        after(watermarks)

    return lines_run(work)


def test_a_report_costs_the_same_in_any_dataflow() -> None:
    small, large = lines_of_a_report(100), lines_of_a_report(2_000)
    assert large < 2 * small
    # The measure sees a full pass, if there is one.
    assert lines_of_a_report(2_000, after=lambda watermarks: watermarks.values()) > 10 * small


def test_a_compiled_report_costs_the_same_in_any_dataflow() -> None:
    def seconds(size: int) -> float:
        watermarks = WatermarkSolver([(1, True)] * size, layered(size, 2), compiled=True)
        for epoch in (1, 2):
            watermarks.tick([aligned(p, epoch) for p in range(1, size)])
        found = []
        for p in range(1, 200):
            start = time.perf_counter()
            watermarks.report(*aligned(p, 3))
            found.append(time.perf_counter() - start)
        return sorted(found)[len(found) // 4]

    # A pass over all edges of the large one takes 50 times as long as over those of the small one, and over 100 us.
    assert seconds(50_000) < 3 * seconds(1_000) + 50e-6


def test_the_compiled_form_is_for_large_dataflows_of_epochs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental, "_LARGE", 2)
    monkeypatch.setattr(incremental, "EpochForest", lambda *_: "compiled")

    def is_compiled(depth: int, *summaries: Summary, compiled: bool | None = None) -> bool:
        """Of two processors of epochs, one of this depth, and edges between the first two."""
        kinds = [(1, True), (1, True), (depth, True)]
        edges = [PhysicalEdge(0, 1, summary) for summary in summaries]
        return WatermarkSolver(kinds, edges, compiled=compiled)._epochs is not None

    assert is_compiled(1, SAME, SAME)
    assert not is_compiled(1, SAME)
    assert is_compiled(1, SAME, compiled=True)
    assert not is_compiled(1, SAME, SAME, compiled=False)
    assert not is_compiled(2, SAME, SAME)
    assert not is_compiled(2, SAME, SAME, compiled=True)
    assert not is_compiled(1, SAME, Summary.feedback(1))


def test_numba_is_loaded_only_for_large_dataflows() -> None:
    code = (
        "import sys; from recovery.fixed_point.incremental import WatermarkSolver; "
        "WatermarkSolver([(1, True)], []).report(0, (1,)); assert 'numba' not in sys.modules; "
        "WatermarkSolver([(1, True)], [], compiled=True).report(0, (1,)); assert 'numba' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
