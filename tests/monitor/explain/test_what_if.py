"""Questions about failures: what is predicted is what happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from falkirk.simulate.world import World
from monitor.coordination.effects import Answer
from monitor.coordination.events import Asked
from monitor.coordination.workers import JobPhase
from monitor.explain.what_if import PATIENCE_SECONDS, OpenQuestions, restart, targets
from recovery.agent.agent import Agent
from recovery.epoch_ends import EpochEnds, KnownEnds
from recovery.errors import ReportError
from recovery.metadata import at_cut
from recovery.place import Place
from recovery.protocol import AskCost, Cost, CurrentMemory, Decision
from recovery.rollback.orders import RollbackPlanner
from tests.recovery.jobs import RULE_PROGRAMS, job
from tests.recovery.layouts import LOOP, layout
from timely.errors import FalkirkError

SETTLED = 400
"""Steps after which nothing is under way any more, if sources stand still."""


class CountingWorld(World):
    """Counts the records that each processor handles, in all processes together."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.handled: Counter[int] = Counter()

    def _open(self, process: Any) -> None:
        super()._open(process)
        if process.recovery is not None:
            recorder = process.recovery.agent.recorder
            delivered = recorder.delivered

            def count(processor: int, port: int, time: Any, batch: Any) -> None:
                self.handled[processor] += len(batch)
                delivered(processor, port, time, batch)

            recorder.delivered = count


def counting(program: str, workers: int, seed: int) -> CountingWorld:
    world = CountingWorld(RULE_PROGRAMS[program], workers, seed, ())
    world.outside.check_acknowledged = lambda: None  # type: ignore[method-assign]
    return world


def agents(world: World) -> list[Agent]:
    return [process.recovery.agent for process in world._processes.values() if process and process.recovery]


def coordinator(world: World) -> Any:
    assert world._monitor is not None
    return world._monitor.coordinator


def stand_still(world: World, steps: int = SETTLED, in_the_midst: bool = False) -> None:
    """Sources give nothing more until `go_on`, and what is under way arrives; `in_the_midst`: and stays where it arrived."""
    for process in world._processes.values():
        assert process is not None
        assert process.session is not None
        for source in process.session.sources:
            source.pump = lambda limits: False  # type: ignore[method-assign]
        if in_the_midst:
            process.session.worker.run = lambda limit: False  # type: ignore[method-assign]
    for _ in range(steps):
        world.step()


def go_on(world: World) -> None:
    for process in world._processes.values():
        if process is not None and process.session is not None:
            for source in process.session.sources:
                if "pump" in vars(source):
                    del source.pump
            vars(process.session.worker).pop("run", None)


def ask(world: World, *names: str) -> Answer | str:
    """The answer of the monitor."""
    failed = targets(coordinator(world).layout, names)
    world._tell(Asked(7, failed))
    for _ in range(2_000):
        if world.answers:
            found = world.answers.pop()
            assert found.number == 7
            return found.answer
        world.step()
    raise AssertionError(world.explain())


def far(program: str, workers: int, seed: int, steps: int) -> CountingWorld:
    world = counting(program, workers, seed)
    while steps or coordinator(world).phase is not JobPhase.RUNNING or len(agents(world)) < workers:
        world.step()
        steps = max(0, steps - 1)
    return world


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("program", ["tight", "logs", "stateless", "rounds", "ordered"])
def test_what_is_predicted_happens(program: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(program, seed, 60 + 50 * seed, monkeypatch)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", [0, 1, 5])
def test_what_is_predicted_in_the_midst_of_an_epoch_happens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for stop in range(200, 400, 20):
        # What is counted comes as more or fewer sums of the same words.
        answer = compare("two_loops", seed, stop, monkeypatch, leaving_out="count")
        if any(bound is not None and any(bound[1:]) for bounds in answer.bounds for bound in bounds):
            return
    raise AssertionError("no moment was one in the midst of an epoch")


def compare(
    program: str, seed: int, stop: int, monkeypatch: pytest.MonkeyPatch, leaving_out: str | None = None
) -> Answer:
    """Ask what if a worker failed; let it fail; compare. Records that operators `leaving_out` handle are not compared."""
    whole = counting(program, 2, seed)
    whole.run()
    world = far(program, 2, seed, stop)
    stand_still(world, in_the_midst=leaving_out is not None)
    victim = seed % 2
    answer = ask(world, f"worker:{victim}")
    assert isinstance(answer, Answer), answer

    sent: dict[int, Counter[tuple[int, int]]] = {0: Counter(), 1: Counter()}
    orders: Callable[[RollbackPlanner, Decision], Any] = RollbackPlanner.orders

    def watched(rollback: RollbackPlanner, decision: Decision) -> Any:
        found = orders(rollback, decision)
        index = rollback._worker.index
        places = {edge.edge: number for number, edge in enumerate(rollback._layout.edges)}
        sent[index].update((places[each.edge], index) for each in found.local)
        sent[index].update((places[message.edge], receiver) for receiver, message in found.remote)
        return found

    monkeypatch.setattr(RollbackPlanner, "orders", watched)
    process = world._processes[Place(victim)]
    assert process is not None
    before = coordinator(world).generation
    world._kill(process, "killed")
    while coordinator(world).generation == before:
        world.step()
    go_on(world)
    world.run()

    assert coordinator(world).decision.bounds == answer.bounds
    for worker, resent in enumerate(answer.resent):
        assert sent[worker] == {(each.edge, each.receiver): each.messages for each in resent}
    assert answer.redone is not None
    predicted: Counter[int] = Counter()
    for redone in answer.redone:
        predicted.update({each.processor: each.records for each in redone})
    done = world.handled - whole.handled
    for p, info in enumerate(coordinator(world).layout.processors):
        if info.name == leaving_out:
            del done[p], predicted[p]
    assert dict(done) == dict(+predicted)
    return answer


def test_a_question_changes_nothing() -> None:
    world, other = counting("logs", 2, 5), counting("logs", 2, 5)
    for _ in range(300):
        world.step()
        other.step()
    world._tell(Asked(1, ((0, 0),)))
    world.run()
    other.run()
    assert world.handled == other.handled
    assert len(world.answers) == 1


def test_what_has_not_failed_keeps_its_memory() -> None:
    world = job("tight", 2)
    stand_still(world)
    answer = ask(world)
    assert isinstance(answer, Answer)
    assert {bound for bounds in answer.bounds for bound in bounds} == {None}
    assert answer.redone == ((), ())
    assert answer.resent == ((), ())


def test_one_operator_may_fail_alone() -> None:
    world = job("logs", 2)
    stand_still(world)
    layout = coordinator(world).layout
    answer = ask(world, "third@1")
    assert isinstance(answer, Answer)
    third = next(p for p, info in enumerate(layout.processors) if info.name == "third")
    assert answer.bounds[1][third] is not None
    behind_the_log = next(p for p, info in enumerate(layout.processors) if info.name == "first")
    assert answer.bounds[0][behind_the_log] is answer.bounds[1][behind_the_log] is None
    assert sum(each.messages for resent in answer.resent for each in resent) > 0


def test_the_stores_alone_say_what_a_restart_goes_back_to() -> None:
    world = job("logs", 2)
    stand_still(world)
    answer = restart(coordinator(world).options)
    assert all(bound is not None for bounds in answer.bounds for bound in bounds)
    live = ask(world, "worker:0", "worker:1")
    assert isinstance(live, Answer)
    assert live.bounds == answer.bounds
    assert answer.redone is None


def test_a_rollback_meanwhile_ends_a_question() -> None:
    world = job("tight", 2)
    world._tell(Asked(3, ((0, 0),)))
    process = world._processes[Place(1)]
    assert process is not None
    world._kill(process, "killed")
    assert [each.number for each in world.answers] == [3]
    assert "ask again" in str(world.answers[0].answer)
    world._tell(Asked(4, ((0, 0),)))
    assert "not running" in str(world.answers[1].answer)
    world.run()


def test_a_worker_that_is_busy_is_named() -> None:
    world = job("tight", 2)
    world._tell(Asked(3, ((0, 0),)))
    world._carry_out(coordinator(world)._questions.tick(world.now + PATIENCE_SECONDS))
    assert "worker 0, 1 is busy" in str(world.answers[0].answer)


def test_names_of_what_fails() -> None:
    of = layout(*LOOP, 2)
    names = [info.name for info in of.processors]
    assert targets(of, ["worker:1"]) == tuple((p, 1) for p in range(len(names)))
    assert targets(of, [f"{names[1]}@0", names[2]]) == ((1, 0), (2, 0), (2, 1))
    for wrong, says in (
        ("worker:2", "0 to 1"),
        ("nobody", names[0]),
        ("worker:x", "0 to 1"),
        (f"{names[1]}@2", "0 to 1"),
        (f"{names[1]}@x", names[0]),
        ("1", names[0]),
        ("worker:" + "9" * 5000, "0 to 1"),
    ):
        with pytest.raises(FalkirkError, match=says):
            targets(of, [wrong])


@pytest.mark.parametrize("program", ["tight", "logs", "stateless", "rounds", "long_loop", "two_loops"])
def test_what_a_worker_with_work_before_it_holds_is_never_less_than_what_it_has_reported_complete(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    step = Agent.step

    def look(agent: Agent, now: float, *events: Any) -> Any:
        nonlocal looked
        found = step(agent, now, *events)
        reported = agent.completion.reported
        if agent.running and reported is not None:
            looked += 1
            for info, held in zip(agent.layout.processors, agent.rounds.memory()):
                assert held.upto >= at_cut(reported[info.group], info.depth)
        return found

    monkeypatch.setattr(Agent, "step", look)
    counting(program, 2, 1).run()
    assert looked


# ---------------------------------------------------------------------------------------------- one question


class Supposed:
    """The facts of a job of two workers with one processor each, for one question."""

    def __init__(self) -> None:
        self.layout = layout("a any", "a>a", 2)
        self.known: list[tuple[EpochEnds, ...]] = []
        self.questions = OpenQuestions()
        self.effects = self.questions.ask(7, cast(Any, self), [(0, 1)], 10.0)

    def memory(self, worker: int, memory: Any, ends: Any) -> None:
        if memory == "wrong":
            raise ReportError("it is wrong")

    def decide(self, memory: Any, failed: Any, known: KnownEnds) -> Any:
        self.known.append(known.all())
        return (((1,),), ((0,),))

    def tell_memory(self, worker: int, memory: Any = (), *ends: EpochEnds) -> list[Any]:
        return self.questions.hear(CurrentMemory(Place(worker), 1, 7, memory, ends))

    def tell_cost(self, worker: int) -> list[Any]:
        return self.questions.hear(Cost(Place(worker), 1, 7, (), ()))


def test_memory_is_checked_as_that_of_a_round_is() -> None:
    (samples,) = Supposed().tell_memory(1, "wrong")
    assert samples.answer == "worker 1 does not answer as it should: it is wrong"


def test_when_all_have_told_their_memory_they_are_asked_once_what_the_decision_would_cost() -> None:
    job = Supposed()
    ends = EpochEnds(1, 0, 0, 2)
    assert job.tell_memory(1, (), ends) == []
    asked = job.tell_memory(0)
    assert [(each.place.worker, each.message) for each in asked] == [
        (worker, AskCost(7, (((1,),), ((0,),)), ((), (0,)))) for worker in (0, 1)
    ]
    assert job.tell_memory(0) == []
    assert job.known == [(ends,)]


def test_an_answer_is_given_once() -> None:
    job = Supposed()
    job.tell_memory(0)
    job.tell_memory(1)
    assert job.tell_cost(0) == []
    (samples,) = job.tell_cost(1)
    assert isinstance(samples.answer, Answer)
    assert job.tell_cost(1) == job.questions.tick(1e9) == job.questions.give_up("over") == []


def test_who_is_silent_is_named_while_memory_and_while_costs_are_asked_for() -> None:
    job = Supposed()
    job.tell_memory(0)
    assert job.questions.tick(10.0) == []
    (samples,) = job.questions.tick(10.0 + PATIENCE_SECONDS)
    assert samples.answer.startswith("worker 1 is busy")
    job = Supposed()
    job.tell_memory(0)
    job.tell_memory(1)
    job.tell_cost(1)
    (samples,) = job.questions.tick(10.0 + PATIENCE_SECONDS)
    assert samples.answer.startswith("worker 0 is busy")


def test_operators_may_have_names_that_look_like_something_else() -> None:
    names = ["worker", "by:1", "7", "x@1", "x"]
    odd = layout(", ".join(f"{name} any" for name in names), "worker>7", 2)
    for p, name in enumerate(names):
        assert targets(odd, [name]) == targets(odd, [f"operator:{name}"]) == ((p, 0), (p, 1))
        assert targets(odd, [f"{name}@0"]) == ((p, 0),)
    named = replace(odd, processors=(replace(odd.processors[0], name="worker:1"), *odd.processors[1:]))
    assert targets(named, ["operator:worker:1"]) == ((0, 0), (0, 1))
    assert targets(named, ["worker:1"]) == tuple((p, 1) for p in range(len(names)))
    with pytest.raises(FalkirkError, match="numbered 0 to 1"):
        targets(odd, ["worker:\N{ARABIC-INDIC DIGIT ONE}"])
