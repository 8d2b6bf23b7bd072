"""Reports that may be made, and that the low-watermarks are the solution from scratch."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest

from falkirk.simulate.world import World
from monitor.coordination.options import Options
from recovery.epoch_ends import EpochEnds, KnownEnds
from recovery.errors import ReportError
from recovery.fixed_point.solve import AnyFrontier, CheckpointChain, solve
from recovery.layout import GroupInfo
from recovery.metadata import NEVER, Bound, Xi
from recovery.protocol import LIVE, InMemory
from tests.monitor.coordination.coordinators import checkpoint, memory
from tests.recovery.jobs import RULE_PROGRAMS
from tests.recovery.layouts import FIREWALL, LAYOUTS, LINE, LOOP, layout
from tests.support.profile import tries


def from_scratch(options: Options) -> list[Bound | None]:
    topology = options.topology
    return solve(
        topology.edges,
        [
            CheckpointChain(options.chains[flat], topology.info(flat).depth)
            if topology.info(flat).chain
            else AnyFrontier(options._completed[flat])
            for flat in range(topology.count)
        ],
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_low_watermarks_are_the_solution_from_scratch(name: str) -> None:
    """Workers complete epochs and make checkpoints at what all have completed; now and then all of them fail."""
    risen = 0
    for seed in range(tries(25)):
        random = Random(seed)
        plan = layout(*LAYOUTS[name], random.randrange(1, 4))
        options = Options(plan)
        workers, groups = range(plan.workers), range(len(plan.groups))
        epochs = [[0 for _ in groups] for _ in workers]
        cuts = [[0 for _ in groups] for _ in workers]
        for _ in range(80):
            worker, group = random.choice(workers), random.choice(groups)
            for each in epochs:
                each[group] += random.randrange(3)
            options.complete(worker, tuple((epoch,) for epoch in epochs[worker]))
            at = min(each[group] for each in epochs)
            if cuts[worker][group] < at and random.random() < 0.6:
                cuts[worker][group] = at
                options.durable(worker, group, (at,), checkpoint(plan, group, (at,)))
            if random.random() < 0.03:
                decided = options.decide({})
                options.cut(decided)
                for w, of in enumerate(decided):
                    bounds = [[of[p] for p in plan.members(group)] for group in groups]
                    epochs[w] = [min(bound[0] for bound in each if bound is not None) for each in bounds]
                    cuts[w] = list(epochs[w])
            risen += options.raise_watermarks()
            assert from_scratch(options) == options._low
    assert risen > 50


@pytest.mark.parametrize("name", ["rounds", "stateless", "ahead"])
def test_low_watermarks_of_jobs_are_the_solution_from_scratch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rises = Options.raise_watermarks
    met: Counter[bool] = Counter()

    def compared(self: Options) -> bool:
        risen = rises(self)
        assert from_scratch(self) == self._low
        met[risen] += 1
        return risen

    monkeypatch.setattr(Options, "raise_watermarks", compared)
    for seed in range(1, 1 + tries(2)):
        World(RULE_PROGRAMS[name], 1 + seed % 3, seed).run()
    assert min(met[True], met[False]) > 5


def line() -> Options:
    return Options(layout(*LINE, 1))


def test_a_cut_counts_when_all_of_it_is_there() -> None:
    options = line()
    options.durable(0, 0, (3,), [Xi(0, (3,), ((3,),)), Xi(2, (3,), ((3,),)), Xi(3, (3,), ())])
    assert options.raise_watermarks()
    assert options.watermarks == (((3,),) * 4,)
    assert not options.raise_watermarks()


@pytest.mark.parametrize(
    "xis",
    [
        [],  # nothing, where three processors persist
        [Xi(0, (3,), ((3,),)), Xi(2, (3,), ((3,),))],  # one is missing
        [Xi(0, (3,), ((3,),)), Xi(1, (3,), ((3,),)), Xi(2, (3,), ((3,),)), Xi(3, (3,), ())],  # one keeps nothing
        [Xi(0, (3,), ((3,),)), Xi(2, (4,), ((4,),)), Xi(3, (3,), ())],  # another bound
        [Xi(0, (3,), ((3,),)), Xi(2, (3, 0), ((3,),)), Xi(3, (3,), ())],  # another depth
        [Xi(0, (3,), ()), Xi(2, (3,), ((3,),)), Xi(3, (3,), ())],  # a port is missing
        [Xi(0, (3,), ((3, 1),)), Xi(2, (3,), ((3,),)), Xi(3, (3,), ())],  # another depth on a port
        [Xi(0, (3,), ((3,),)), Xi(9, (3,), ((3,),)), Xi(3, (3,), ())],  # unknown
        [Xi(0, (3,), ((3,),)), Xi(4, (3,), ((3,),)), Xi(3, (3,), ())],  # unknown, just so
        [Xi(0, (-3,), ((3,),)), Xi(2, (3,), ((3,),)), Xi(3, (3,), ())],
        [Xi(0, (3,), ((-3,),)), Xi(2, (3,), ((3,),)), Xi(3, (3,), ())],
        [Xi(0, (3,), ((NEVER + 1,),)), Xi(2, (3,), ((3,),)), Xi(3, (3,), ())],
        [Xi(0, (3,), ((3,),)), Xi(0, (4,), ((4,),)), Xi(2, (3,), ((3,),)), Xi(3, (3,), ())],  # one has two
    ],
)
def test_a_cut_that_cannot_be_is_refused(xis: list[Xi]) -> None:
    with pytest.raises(ReportError):
        line().durable(0, 0, (3,), xis)


@pytest.mark.parametrize(
    ("group", "at"),
    [(-1, (3,)), (1, (3,)), (0, (0,)), (0, (NEVER + 1,)), (0, (3, 0))],
)
def test_a_cut_of_no_group_or_at_no_epoch_is_refused(group: int, at: Bound) -> None:
    bound = at[:1]
    with pytest.raises(ReportError, match="which cannot be"):
        line().durable(0, group, at, [Xi(0, bound, (bound,)), Xi(2, bound, (bound,)), Xi(3, bound, ())])


def test_who_has_a_later_checkpoint_already_is_left_out_of_a_cut() -> None:
    options = line()
    options.join(0, [Xi(0, (5,), ((5,),)), Xi(2, (3,), ((3,),)), Xi(3, (3,), ())])
    options.durable(0, 0, (4,), [Xi(2, (4,), ((4,),)), Xi(3, (4,), ())])
    assert [chain[-1][0] for chain in options.chains if chain] == [(5,), (4,), (4,)]
    with pytest.raises(ReportError, match=r"too many or too few: .*'out'"):
        options.durable(0, 0, (5,), [Xi(2, (5,), ((5,),))])
    options.durable(0, 0, (5,), [Xi(2, (5,), ((5,),)), Xi(3, (5,), ())])  # who has just that one need not tell it again
    assert [len(chain) for chain in options.chains] == [1, 0, 3, 3]


def test_whether_all_have_completed_what_was_persisted_before() -> None:
    options = line()
    assert not options.reached([[(3,)]])
    options.complete(0, ((2,),))
    assert not options.reached([[(3,)]])
    options.complete(0, ((3,),))
    assert options.reached([[(3,)]])
    nothing_kept = Options(layout("a any, b any", "a>b", 1))
    nothing_kept.complete(0, ((0,),))
    assert nothing_kept.reached(nothing_kept.last_cuts())
    two = Options(layout(*LINE, 2))
    two.complete(0, ((3,),))
    assert not two.reached([[(3,), (3,)]])
    two.complete(1, ((2,),))
    assert not two.reached([[(3,), (3,)]])
    assert two.reached([[(3,), (2,)]])


def test_a_group_that_keeps_nothing_must_come_as_far_as_the_furthest_of_those_that_do() -> None:
    options = Options(layout("a source, q any, b chain", "a|q, q|b", 1))
    for upto, there in (((4,), False), ((5,), True)):
        options.complete(0, ((5,), upto, (5,)))
        assert options.last_cuts()[1] == [(NEVER,)]
        assert options.reached([[(3,)], [(NEVER,)], [(5,)]]) == there
        assert (
            options.reached([[(4, 1)], [(NEVER,)], [(4,)]]) == there
        )  # in the midst of an epoch, all of it has entered


def test_what_a_worker_offers_when_it_joins_counts_for_w() -> None:
    available = line()
    available.complete(0, ((9,),))
    assert not available.raise_watermarks()
    available.join(0, [Xi(p, (3,), ((3,),) if p < 3 else ()) for p in (0, 2, 3)])
    assert available.raise_watermarks()
    assert available.watermarks == (((3,),) * 4,)


def test_what_sends_nothing_does_not_go_back_either() -> None:
    available = Options(layout("a chain, b chain", "a|b", 1))
    available.durable(0, 1, (3,), [Xi(1, (3,), ())])
    with pytest.raises(ReportError, match="after one at"):
        available.durable(0, 1, (2,), [Xi(1, (2,), ())])


def test_what_keeps_nothing_offers_no_checkpoint() -> None:
    with pytest.raises(ReportError, match=r"'map'.*has none"):
        line().join(0, [Xi(1, (3,), ((3,),))])


def test_the_beginning_is_no_checkpoint() -> None:
    available = line()
    assert available.join(0, [Xi(p, (0,), ((0,),) if p < 3 else ()) for p in (0, 2, 3)]) is None
    assert not any(available.chains)


def two_groups() -> Options:
    """Read and clean, and behind a firewall count and out."""
    return Options(layout(*FIREWALL, 1))


def test_all_groups_of_a_worker_count() -> None:
    options = two_groups()
    options.complete(0, ((3,), (2,)))
    assert not options.reached([[(3,)], [(3,)]])
    assert options.reached([[(3,)], [(2,)]])
    with pytest.raises(ReportError, match="completed"):
        options.complete(0, ((4,), (1,)))
    assert options.minimum() == [(3,), (2,)]


def test_the_last_cut_of_a_group_is_where_all_of_it_have_a_checkpoint() -> None:
    for ends in ((3, 5, 4), (5, 3, 4), (4, 5, 3)):
        options = line()
        options.join(0, [Xi(p, (end,), ((end,),) if p < 3 else ()) for p, end in zip((0, 2, 3), ends)])
        assert options.last_cuts() == [[(3,)]]


def test_checkpoints_may_be_told_twice_but_not_go_back() -> None:
    options = line()
    three = [Xi(0, (3,), ((3,),)), Xi(2, (3,), ((3,),)), Xi(3, (3,), ())]
    two = [Xi(0, (2,), ((2,),)), Xi(2, (2,), ((2,),)), Xi(3, (2,), ())]
    options.durable(0, 0, (3,), three)
    options.durable(0, 0, (3,), three)
    assert [len(chain) for chain in options.chains] == [1, 0, 1, 1]
    with pytest.raises(ReportError, match="after one at"):
        options.durable(0, 0, (3,), [Xi(0, (3,), ((4,),)), *three[1:]])
    with pytest.raises(ReportError, match=r"'read'.*worker 0"):
        options.durable(0, 0, (2,), two)


def test_what_is_discarded_does_not_shrink() -> None:
    options = line()
    options.durable(0, 0, (3,), [Xi(0, (3,), ((9,),)), Xi(2, (3,), ((3,),)), Xi(3, (3,), ())])
    with pytest.raises(ReportError):
        options.durable(0, 0, (4,), [Xi(0, (4,), ((4,),)), Xi(2, (4,), ((4,),)), Xi(3, (4,), ())])


def test_what_is_logged_is_not_discarded() -> None:
    options = Options(layout(*FIREWALL, 1))
    with pytest.raises(ReportError, match="has to log"):
        options.durable(0, 0, (3,), [Xi(0, (3,), ((3,),)), Xi(1, (3,), ((3,),))])


@pytest.mark.parametrize("upto", [((2,),), ((4,), (4,)), (), ((NEVER + 1,),), ((4, 0),)])
def test_completed_epochs_only_rise(upto: tuple[Bound, ...]) -> None:
    options = line()
    options.complete(0, ((3,),))
    with pytest.raises(ReportError):
        options.complete(0, upto)


def test_memory_must_fit_the_layout() -> None:
    options = Options(layout(*LOOP, 1))
    good = memory(0, options.layout)
    options.memory(0, good)
    with pytest.raises(ReportError):
        options.memory(0, good[1:])
    for held in [
        InMemory((0, 0), (0,), (), good[0].discards),
        InMemory((0,), (0,), ((0,),), good[0].discards),
        InMemory((0,), (0,), (), ()),
        InMemory((0,), (0,), (), ((0, 0),)),
        InMemory((0,), (0, 0), (), good[0].discards),
        InMemory((0,), (NEVER + 1,), (), good[0].discards),
    ]:
        with pytest.raises(ReportError):
            options.memory(0, (held, *good[1:]))
    with pytest.raises(ReportError, match="the memory of 8 processors"):
        options.memory(0, (*good, good[0]))
    (inner, *_) = (p for p, info in enumerate(options.layout.processors) if info.depth == 2)
    within = InMemory((3, -1), (3, 0), good[inner].delivered, good[inner].discards)
    with pytest.raises(ReportError, match="is no bound"):
        options.memory(0, (*good[:inner], within, *good[inner + 1 :]))
    wrong = InMemory(good[1].upto, good[1].notified, ((-1,),), good[1].discards)
    with pytest.raises(ReportError, match="is no bound"):
        options.memory(0, (good[0], wrong, *good[2:]))


def test_what_is_kept_must_fit_the_edges_that_keep() -> None:
    options = Options(layout(*LINE, kept=True))
    good = memory(0, options.layout)
    (sender,) = {edge.source for edge in options.layout.edges if edge.kept}

    def say(*kept: tuple[Bound, ...]) -> None:
        held = msgspec.structs.replace(good[sender], kept=kept)
        options.memory(0, (*good[:sender], held, *good[sender + 1 :]))

    say(((0,), (0,)))
    for kept in [(), (((0,),),), (((0,), (0,), (0,)),), (((0,), (0,)), ((0,), (0,)))]:
        with pytest.raises(ReportError, match="the messages that it keeps do not fit its edges"):
            say(*kept)
    with pytest.raises(ReportError, match="is no bound"):
        say(((0,), (0, 0)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"worker": 2},
        {"worker": -1},
        {"processor": 4},
        {"processor": -1},
        {"processor": 1},
        {"begin": -1},
        {"begin": 4},
        {"upto": NEVER + 1},
    ],
    ids=str,
)
def test_ends_of_epochs_must_be_of_a_source_and_in_order(wrong: dict[str, int]) -> None:
    options = Options(layout(*LINE))
    good = EpochEnds(1, 0, 0, 3, (("a", ((0, 5),)),))
    options.memory(0, memory(0, options.layout), [good, msgspec.structs.replace(good, upto=NEVER)])
    with pytest.raises(ReportError, match="ends of epochs that cannot be"):
        options.memory(0, memory(0, options.layout), [good, msgspec.structs.replace(good, **wrong)])


def test_who_has_completed_less_than_it_has_persisted_is_not_believed() -> None:
    options = line()
    options.durable(0, 0, (3,), [Xi(0, (3,), ((3,),)), Xi(2, (3,), ((3,),)), Xi(3, (3,), ())])
    options.raise_watermarks()
    with pytest.raises(ReportError, match="less than it has persisted"):
        options.memory(0, memory(0, options.layout))


def test_a_store_that_lost_what_w_needs_is_named() -> None:
    low = (((3,),) * 4,)
    wrong = Options(layout(*LINE, 1), low).join(0, [Xi(0, (3,), ((3,),)), Xi(2, (2,), ((2,),)), Xi(3, (3,), ())])
    assert wrong is not None
    assert "store of worker 0 has lost" in wrong
    assert "'count'" in wrong
    assert "(3,)" in wrong


def test_a_store_with_checkpoints_above_what_w_needs_only_is_named() -> None:
    """W promises that checkpoint itself: solutions between it and a later one may be needed."""
    low = (((3,),) * 4,)
    above = [Xi(0, (3,), ((3,),)), Xi(2, (4,), ((4,),)), Xi(3, (3,), ())]
    wrong = Options(layout(*LINE, 1), low).join(0, above)
    assert wrong is not None
    assert "'count' of worker 0" in wrong
    assert Options(layout(*LINE, 1), low).join(0, [Xi(2, (3,), ((3,),)), *above]) is None


def test_a_checkpoint_that_says_it_discarded_less_than_its_frontier_is_taken_to_have_discarded_that() -> None:
    """Memory at the same bound offers that much: W may rest on nothing that a round could not choose."""
    options = line()
    options.durable(0, 0, (3,), [Xi(0, (3,), ((1,),)), Xi(2, (3,), ((0,),)), Xi(3, (3,), ())])
    assert options.chains[options.topology.flat(0, 0)] == [((3,), ((3,),))]
    assert options.chains[options.topology.flat(2, 0)] == [((3,), ((3,),))]
    options.durable(0, 0, (4,), [Xi(0, (4,), ((7,),)), Xi(2, (4,), ((4,),)), Xi(3, (4,), ())])
    assert options.chains[options.topology.flat(0, 0)][-1] == ((4,), ((7,),))


def test_after_a_decision_old_reports_of_what_stayed_prove_nothing() -> None:
    """An any-processor that stays at ⊤ had completed 8; what is before it goes back, and may send at 5 again."""
    options = line()
    options.complete(0, ((8,),))
    assert options._completed[1] == (8,)
    options.cut((((5,), None, None, None),))
    assert options._completed[1] == (0,)
    options.cut((((5,), (5,), None, None),))
    assert options._completed[1] == (5,)


def test_a_worker_whose_store_begins_after_the_watermark_is_not_the_one_that_lost_something() -> None:
    """It has collected what it was told to: the monitor's journal is too old."""
    for ends, blamed in (
        ((5, 6), "the journal of the monitor"),
        ((2,), "the store of worker 0"),
        ((), "the store of worker 0"),
    ):
        options = Options(layout(*LINE, 1), (((3,),) * 4,))
        xis = [Xi(p, (end,), ((end,),) if p < 3 else ()) for p in (0, 2, 3) for end in ends]
        wrong = options.join(0, xis)
        assert wrong is not None
        assert wrong.startswith(blamed), wrong


ALL = tuple(EpochEnds(worker, 0, 0, 6) for worker in range(2))


@pytest.mark.parametrize(
    ("told", "stays"),
    [
        (ALL, 6),
        ((), 3),
        (ALL[:1], 3),
        (ALL[1:], 3),
        ((ALL[0], msgspec.structs.replace(ALL[1], upto=5)), 5),
        ((msgspec.structs.replace(ALL[0], upto=4), ALL[1]), 4),
        ((ALL[0], msgspec.structs.replace(ALL[1], local_only=True)), 6),
        ((msgspec.structs.replace(ALL[0], local_only=True), ALL[1]), 3),
        ((ALL[0], msgspec.structs.replace(ALL[1], begin=1)), 3),
    ],
)
def test_a_reader_stays_as_far_as_ends_are_known_of_all_sources_that_go_back(
    told: tuple[EpochEnds, ...], stays: int
) -> None:
    """By themselves they read in other epochs. Worker 0 has failed, and worker 1, which has forgotten what it sent, goes back
    with it; worker 2 has its memory. Ends that only the process knows which has read are of use while it lives."""
    plan = layout("read source, count chain", "read=>count", 3, kept=True)
    plan = msgspec.structs.replace(
        plan, processors=(msgspec.structs.replace(plan.processors[0], repeats=False), plan.processors[1])
    )
    options = Options(plan)
    for worker in range(3):
        options.durable(worker, 0, (3,), [Xi(0, (3,), ((3,),)), Xi(1, (3,), ())])

    def holds(kept: Bound) -> list[InMemory]:
        sent = InMemory((6,), (6,), (), ((7,),), kept=((kept,) * 3,))
        return [sent, InMemory((6,), (6,), ((7,),), ())]

    decided = options.decide({1: holds((5,)), 2: holds((0,))}, known=KnownEnds(told))
    assert decided[:2] == (((3,), (3,)),) * 2
    assert decided[2] == (LIVE, (stays,))


@pytest.mark.parametrize("mate", [False, True])
def test_what_a_mate_holds_counts_for_w1_only_while_it_is_known_to_have_all(mate: bool) -> None:
    plan = layout("a source, b chain", "a>b", 1, GroupInfo(1, None, durable=10.0))
    options = Options(plan)
    options.mate(0, mate)
    options.raise_memory()
    for epoch in (1, 2):
        options.durable(0, 0, (epoch,), checkpoint(plan, 0, (epoch,)), held=True)
    assert bool(options.raise_memory()) == mate
    options.flushed(0, checkpoint(plan, 0, (1,)))
    options.raise_memory()
    options.mate(0, True)
    options.raise_memory()
    options.mate(0, False)
    assert (0, (1,)) in options.raise_memory()
    options.flushed(0, checkpoint(plan, 0, (2,)))
    assert (0, (2,)) in options.raise_memory()
