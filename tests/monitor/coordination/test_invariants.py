"""The invariants of the coordinator can fail: without a rule, the one that stands for it says so. And the story is told."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from monitor.coordination.coordinator import Coordinator
from monitor.coordination.cuts import Cuts
from monitor.coordination.events import Asked, Ticked
from monitor.coordination.invariants import (
    INVARIANTS,
    all_are_there_while_it_runs,
    memory_counts_in_its_round,
    nobody_waits_for_ever,
    options_ascend,
    watermarks_are_consistent,
    watermarks_are_durable_first,
    who_has_failed_does_not_stay,
    who_is_done_needs_nothing,
)
from monitor.coordination.options import Options
from monitor.coordination.records import KeptWatermarks
from monitor.coordination.workers import JobPhase, Presence, WorkerStatus, WorkerTable
from recovery.fixed_point.solve import PhysicalEdge
from recovery.layout import lay_out
from recovery.metadata import MORE, at_epoch, everything
from recovery.place import Place, places
from recovery.protocol import LIVE, Completed, Durable
from tests.monitor.coordination.coordinators import PLAN, checkpoint, life, running, settings, write_all
from tests.monitor.coordination.driven import DrivenCoordinator
from tests.monitor.coordination.test_faults import decide_at_once
from tests.recovery.agent.test_completion import nesting
from timely.dataflow.plan import compile_plan
from timely.story import InvariantBroken, Story, brief
from timely.time import Summary


def announced_at_once(patch: pytest.MonkeyPatch) -> None:
    raises = Coordinator._raise_watermarks

    def hasty(self: Coordinator, by: float = 0.0) -> None:
        raises(self)
        if self.options.watermarks != self.low_watermarks:
            self._announce(self.options.watermarks)

    patch.setattr(Coordinator, "_raise_watermarks", hasty)


def numbers_before_they_are_reserved(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: Coordinator) -> int:
        self.round = max(self.round + 1, self.reserved + 1)
        return self.round

    patch.setattr(Coordinator, "_next_round", hasty)


def deciding(change: Callable[[Options, Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    def patched(patch: pytest.MonkeyPatch) -> None:
        decide = Options.decide
        patch.setattr(Options, "decide", lambda self, *args, **named: change(self, decide(self, *args, **named)))

    return patched


def all_stay(options: Options, bounds: Any) -> Any:
    return tuple((None,) * len(each) for each in bounds)


def all_begin_anew(options: Options, bounds: Any) -> Any:
    return tuple(tuple(info.nothing for info in options.layout.processors) for _ in bounds)


def checkpoints_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    rises = Options.raise_watermarks

    def forgetful(self: Options) -> bool:
        risen = rises(self)
        if risen:
            self.chains = [[] for _ in self.chains]
        return risen

    patch.setattr(Options, "raise_watermarks", forgetful)


def every_processor_alone(patch: pytest.MonkeyPatch) -> None:
    """W as if there were no edges: each processor's newest checkpoint."""

    def rises(self: Options) -> bool:
        newest = [chain[-1][0] if chain else low for chain, low in zip(self.chains, self._low)]
        risen, self._low = newest != self._low, newest
        return risen

    patch.setattr(Options, "raise_watermarks", rises)


def reports_are_taken_as_they_come(patch: pytest.MonkeyPatch) -> None:
    read = Options._read

    def unsorted(self: Options, worker: int, xis: Any) -> Any:
        return {flat: options[::-1] for flat, options in read(self, worker, xis).items()}

    patch.setattr(Options, "_read", unsorted)


def cuts_ahead(patch: pytest.MonkeyPatch) -> None:
    due = Cuts.due

    def hasty(self: Cuts, minimum: Any, now: float) -> Any:
        return due(self, [at_epoch(bound[0] + 2, len(bound)) for bound in minimum], now)

    patch.setattr(Cuts, "due", hasty)


def no_deadlines(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkerStatus, "must", lambda self, doing, due: None)


def memory_stays(patch: pytest.MonkeyPatch) -> None:
    decide_for = Coordinator._decide_for

    def remembering(self: Coordinator, status: WorkerStatus) -> None:
        memory = status.memory
        decide_for(self, status)
        status.memory = memory

    patch.setattr(Coordinator, "_decide_for", remembering)


def runs_before_all_have_restored(patch: pytest.MonkeyPatch) -> None:
    restored = Coordinator._on_restored

    def hasty(self: Coordinator, status: WorkerStatus, message: Any) -> None:
        restored(self, status, message)
        if self.phase is JobPhase.RESTORING:
            self._run()

    patch.setattr(Coordinator, "_on_restored", hasty)


def done_too_early(patch: pytest.MonkeyPatch) -> None:
    completed = Coordinator._on_completed

    def hasty(self: Coordinator, status: WorkerStatus, message: Any) -> None:
        completed(self, status, message)
        status.released = True

    patch.setattr(Coordinator, "_on_completed", hasty)


LOSSES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "numbers_of_rounds_are_reserved": numbers_before_they_are_reserved,
    "decisions_are_durable_first": decide_at_once,
    "who_has_failed_does_not_stay": deciding(all_stay),
    "decisions_keep_what_was_promised": deciding(all_begin_anew),
    "watermarks_are_durable_first": announced_at_once,
    "watermarks_can_be_restored": checkpoints_are_forgotten,
    "watermarks_are_consistent": every_processor_alone,
    "options_ascend": reports_are_taken_as_they_come,
    "cuts_are_at_what_is_complete": cuts_ahead,
    "nobody_waits_for_ever": no_deadlines,
    "memory_counts_in_its_round": memory_stays,
    "all_are_there_while_it_runs": runs_before_all_have_restored,
    "who_is_done_needs_nothing": done_too_early,
}


def test_a_life_breaks_nothing() -> None:
    life(DrivenCoordinator(PLAN, None, settings()))


def test_cuts_within_the_epochs_of_a_loop_in_a_loop_break_nothing() -> None:
    """For a checkpoint whose discarded messages are in another time domain than itself."""
    plan = lay_out(compile_plan(nesting().graph, 2))
    coordinator = running(plan=plan)
    group = next(number for number, each in enumerate(plan.groups) if each.depth == 2)
    cut = (1, 2)
    upto = tuple(cut if number == group else at_epoch(1, each.depth) for number, each in enumerate(plan.groups))
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 1, upto), 1.0)
    for worker in range(2):
        coordinator.hear(Durable(Place(worker), 1, group, cut, checkpoint(plan, group, cut)), 2.0)
    write_all(coordinator)
    inner = next(p for p, info in enumerate(plan.processors) if info.name == "inner-enter")
    assert coordinator.low_watermarks[0][inner] == cut


def test_a_decision_is_held_to_the_rules_when_it_is_durable_too() -> None:
    coordinator = running()
    assert coordinator.decision is not None
    assert who_has_failed_does_not_stay(coordinator) is None
    bounds = ((LIVE, LIVE), coordinator.decision.bounds[1])
    coordinator.decision = msgspec.structs.replace(coordinator.decision, bounds=bounds)
    assert "lets worker 0 stay as it is, which has failed" in str(who_has_failed_does_not_stay(coordinator))


@pytest.mark.parametrize("name", [invariant.__name__ for invariant in INVARIANTS])
def test_without_its_rule_an_invariant_is_broken_and_no_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    LOSSES[name](monkeypatch)
    speak: list[str] = []
    check = Coordinator.check

    def heard(self: Coordinator) -> None:
        speak[:] = [invariant.__name__ for invariant in INVARIANTS if invariant(self) is not None]
        check(self)

    monkeypatch.setattr(Coordinator, "check", heard)
    with pytest.raises(InvariantBroken, match=f"^{name}: ") as raised:
        life(DrivenCoordinator(PLAN, None, settings()))
    assert speak == [name]
    assert "the story, as far back as it is known" in str(raised.value)


def test_two_checkpoints_at_one_bound_are_no_chain() -> None:
    coordinator = running()
    chain = coordinator.options.chains[0]
    chain += [((3,), ((3,),)), ((4,), ((4,),))]
    assert options_ascend(coordinator) is None
    for wrong in (((4,), ((4,),)), ((5,), ((3,),))):
        chain.append(wrong)
        assert "then" in str(options_ascend(coordinator))
        chain.pop()


def test_of_two_checkpoints_the_later_holds_the_earlier_and_is_not_only_the_larger_tuple() -> None:
    chain: list[Any] = [((3, 7, MORE, 5), ()), ((4, 5), ())]
    options = SimpleNamespace(chains=[chain], topology=SimpleNamespace(name=str))
    job = cast(Coordinator, SimpleNamespace(options=options))
    assert options_ascend(job) is None
    chain[1] = ((4, 2), ())
    assert "then" in str(options_ascend(job))


def supposed(phase: JobPhase, presence: Presence, **status: Any) -> Coordinator:
    """A job of one worker and one processor, as far as an invariant looks at it. W holds all before epoch 3."""
    table = WorkerTable(places(1), (), 0.0)
    worker = table[Place(0)]
    worker.presence, worker.restored = presence, True
    for name, value in status.items():
        setattr(worker, name, value)
    layout = SimpleNamespace(processors=[SimpleNamespace(everything=everything(1))])
    low = (((3,),),)
    return cast(Coordinator, SimpleNamespace(phase=phase, workers=table, layout=layout, low_watermarks=low))


def test_whoever_is_waited_for_has_a_deadline() -> None:
    for presence in (Presence.AWAITED, Presence.ABSENT, Presence.BEHIND):
        assert nobody_waits_for_ever(supposed(JobPhase.RUNNING, presence)) is not None
        assert nobody_waits_for_ever(supposed(JobPhase.RUNNING, presence, due=7.0)) is None
    for phase, told in ((JobPhase.GATHERING, {"memory": ()}), (JobPhase.RESTORING, {})):
        late = supposed(phase, Presence.ALIVE, restored=False)
        assert nobody_waits_for_ever(late) is not None
        assert nobody_waits_for_ever(supposed(phase, Presence.ALIVE, **told)) is None
        assert nobody_waits_for_ever(supposed(phase, Presence.JOINED, restored=False)) is None
    assert nobody_waits_for_ever(supposed(JobPhase.RUNNING, Presence.ALIVE, restored=False)) is None


def test_while_it_runs_all_are_alive_and_have_restored() -> None:
    for phase in (JobPhase.RUNNING, JobPhase.CLOSING):
        assert all_are_there_while_it_runs(supposed(phase, Presence.ALIVE)) is None
        assert all_are_there_while_it_runs(supposed(phase, Presence.JOINED)) is not None
        assert all_are_there_while_it_runs(supposed(phase, Presence.ALIVE, restored=False)) is not None
    assert all_are_there_while_it_runs(supposed(JobPhase.RESTORING, Presence.JOINED)) is None


def test_memory_counts_of_who_is_alive_in_a_round_alone() -> None:
    for phase in (JobPhase.GATHERING, JobPhase.DECIDING):
        assert memory_counts_in_its_round(supposed(phase, Presence.ALIVE, memory=())) is None
        assert memory_counts_in_its_round(supposed(phase, Presence.JOINED, memory=())) is not None
    assert memory_counts_in_its_round(supposed(JobPhase.RUNNING, Presence.ALIVE, memory=())) is not None
    assert memory_counts_in_its_round(supposed(JobPhase.RUNNING, Presence.JOINED)) is None


def test_who_is_done_has_restored_the_last_decision_and_w_holds_everything_there() -> None:
    job = supposed(JobPhase.RUNNING, Presence.ALIVE, released=True)
    assert "is done, and W is" in str(who_is_done_needs_nothing(job))
    job.low_watermarks = ((everything(1),),)
    assert who_is_done_needs_nothing(job) is None
    job.workers[Place(0)].restored = False
    assert "is done, and W is" in str(who_is_done_needs_nothing(job))
    waits = supposed(JobPhase.CLOSING, Presence.ALIVE)
    assert "worker 0 is not done" in str(who_is_done_needs_nothing(waits))


def test_w_on_its_way_to_the_journal_is_nowhere_less_than_what_was_announced() -> None:
    low: Any = (((3,), (3,)), ((3,), (3,)))
    for written, fine in (
        ((((4,), (3,)), ((3,), (3,))), True),
        ((((4,), (2,)), ((3,), (3,))), False),
        ((((4,), (4,)), ((3,), (2,))), False),
        (low, False),
    ):
        record = KeptWatermarks(written)
        options, commit = SimpleNamespace(watermarks=written), SimpleNamespace(unwritten=[record])
        job = cast(Coordinator, SimpleNamespace(options=options, commit=commit, low_watermarks=low))
        assert (watermarks_are_durable_first(job) is None) is fine


def test_an_internal_error_tells_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = running()

    def fails(*_: object) -> None:
        raise KeyError("put in")

    monkeypatch.setattr(Coordinator, "_cut", fails)
    with pytest.raises(KeyError) as raised:
        coordinator.step(2.0, Asked(7, ((0, 1),)), Ticked())
    (story,) = raised.value.__notes__
    assert "Restored(place=(1, 0), generation=1, " in story
    assert story.splitlines()[-2:] == [
        "    -> Send(place=(0, 0), message=AskMemory(question=7))",
        "    -> Send(place=(1, 0), message=AskMemory(question=7))",
    ]


def test_a_story_is_bounded_and_keeps_nothing_alive() -> None:
    story = Story(3)
    for number in range(10):
        story.tell(number, ["x" * 10_000], [list(range(100))])
    assert str(story).count("->") == 3
    assert len(str(story)) < 1000
    assert brief([[[[1, 2]]]]) == "[[[list of 2]]]"


def edge_of(source: Any, target: Any, chains: Any) -> Coordinator:
    """A running job of two processors, at `source` and `target` in W, and an edge that leaves times as they are."""
    edge = PhysicalEdge(0, 1, Summary.identity(1))
    topology = SimpleNamespace(edges=[edge], name=str)
    low = [source, target]
    return cast(
        Coordinator,
        SimpleNamespace(
            phase=JobPhase.RUNNING, options=SimpleNamespace(topology=topology, low=low.__getitem__, chains=chains)
        ),
    )


def test_w_holds_what_was_discarded_at_its_receiver_and_no_more_there_than_can_come() -> None:
    saved = [[((3,), ((2,),))], []]
    assert watermarks_are_consistent(edge_of((3,), (2,), saved)) is None
    assert watermarks_are_consistent(edge_of((3,), (1,), saved)) is not None
    assert watermarks_are_consistent(edge_of((3,), (4,), saved)) is not None
    nothing_saved: Any = [[], []]
    assert watermarks_are_consistent(edge_of((3,), (3,), nothing_saved)) is None
    assert watermarks_are_consistent(edge_of((3,), (2,), nothing_saved)) is not None


def test_memory_of_who_is_alive_counts_in_no_other_phase() -> None:
    for phase in set(JobPhase) - {JobPhase.GATHERING, JobPhase.DECIDING}:
        assert memory_counts_in_its_round(supposed(phase, Presence.ALIVE, memory=())) is not None


def test_w_that_is_not_announced_is_on_its_way_to_the_journal_as_it_is() -> None:
    low: Any = (((3,),),)
    for written in (((4,),),), (((5,),),):
        options = SimpleNamespace(watermarks=(((5,),),))
        commit = SimpleNamespace(unwritten=[KeptWatermarks(written)])
        job = cast(Coordinator, SimpleNamespace(options=options, commit=commit, low_watermarks=low))
        assert (watermarks_are_durable_first(job) is None) is (written == options.watermarks)
