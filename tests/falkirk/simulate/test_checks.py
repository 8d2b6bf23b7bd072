"""The checks of the simulator while a job runs: each finds what it is there for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from falkirk.simulate.again import Sends
from falkirk.simulate.checks import Checks, Closed
from falkirk.simulate.judging import same
from falkirk.simulate.outside import Contradiction, Outside, RecordingSink, Violation, WatchedSource
from falkirk.simulate.process import Killed, Process
from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from monitor.coordination.records import KeptDecision, KeptFinished, KeptWatermarks
from recovery.checkpoint.published import PublishedBounds
from recovery.layout import Layout
from recovery.metadata import NEVER
from recovery.place import Place
from recovery.protocol import Completed, Cut, Decision, Drain, Drained, InMemory, Watermarks
from tests.falkirk.simulate.programs import PROGRAMS
from tests.recovery.jobs import job
from tests.recovery.layouts import layout
from timely.data.messages import Captured
from timely.io import Callback, Iterable
from timely.io.interface import Chunk, End
from timely.operators.ends import StagedEnd


class Nothing:
    def at_io(self, worker: int) -> None:
        pass


def decision(generation: int, *bounds: Any, low: int = 0) -> Decision:
    marks = tuple((low,) for _ in bounds)
    return Decision(generation, (tuple(bounds),), (), (marks,))


def closed_of(plan: Layout, decisions: dict[int, Any]) -> Closed:
    return Closed(plan, 0, decisions, Sends(plan, 0))


def decided(checks: Checks, message: Decision) -> None:
    checks.durable((KeptDecision(message.generation, message.generation - 1, message.bounds, message.failed),))
    checks.on_order(message)


class TestTheMonitor:
    def test_low_watermarks_never_fall(self) -> None:
        checks = Checks()
        checks.durable((KeptWatermarks((((5,),),)),))
        checks.on_order(Watermarks(((0, 0, (5,)),)))
        with pytest.raises(Violation, match="falls"):
            checks.on_order(Watermarks(((0, 0, (4,)),)))

    def test_low_watermarks_are_durable_before_they_are_announced(self) -> None:
        with pytest.raises(Violation, match="before that is durable"):
            Checks().on_order(Watermarks(((0, 0, (1,)),)))

    def test_no_decision_lies_below_the_low_watermark(self) -> None:
        checks = Checks()
        checks.durable((KeptWatermarks((((5,),),)),))
        checks.on_order(Watermarks(((0, 0, (5,)),)))
        decided(checks, decision(1, None, low=5))
        decided(checks, decision(2, (5,), low=5))
        with pytest.raises(Violation, match="below"):
            decided(checks, decision(3, (4,), low=5))

    def test_a_decision_is_durable_before_it_is_sent(self) -> None:
        with pytest.raises(Violation, match="before it is durable"):
            Checks().on_order(decision(1, None))

    def test_a_decision_is_one_and_the_same_for_all(self) -> None:
        checks = Checks()
        decided(checks, decision(1, (2,)))
        checks.on_order(decision(1, (2,)))
        with pytest.raises(Violation, match="is now"):
            checks.on_order(decision(1, (3,)))

    def test_generations_rise(self) -> None:
        checks = Checks()
        one, two = decision(1, (2,)), decision(2, (2,))
        checks.durable(tuple(KeptDecision(each.generation, 0, each.bounds, ()) for each in (one, two)))
        checks.on_order(two)
        with pytest.raises(Violation, match="comes after"):
            checks.on_order(one)

    def test_the_journal_contradicts_nothing_that_it_says(self) -> None:
        checks = Checks()
        checks.durable((KeptDecision(2, 1, (((2,),),), ()), KeptWatermarks((((5,),),))))
        for record, says in (
            (KeptDecision(2, 1, (((3,),),), ()), "is now"),
            (KeptDecision(1, 0, (((3,),),), ()), "comes into the journal after 2"),
            (KeptDecision(3, 2, ((None,),), (0,)), "stay as it is, which has failed"),
            (KeptWatermarks((((4,),),)), "falls in the journal"),
        ):
            with pytest.raises(Violation, match=says):
                checks.durable((record,))

    def test_an_end_is_durable_before_it_is_announced(self) -> None:
        checks = Checks()
        with pytest.raises(Violation, match="before that is durable"):
            checks.finished()
        checks.durable((KeptFinished(),))
        checks.finished()


class TestTheTalkWithAProcess:
    @staticmethod
    def checks() -> tuple[Checks, Process]:
        """Of a process that has said that epochs before 4 are complete."""
        process = Process(Place(0), 1)
        checks = Checks()
        closed = checks._closed[process.owner] = closed_of(layout("a chain, b chain", "a>b", 1), {})
        closed.on_message(Completed(Place(0), 0, ((4,),)))
        return checks, process

    def test_each_number_is_heard_once(self) -> None:
        checks, process = self.checks()
        checks.on_message(process, decision(1, (2,), (2,)))
        with pytest.raises(Violation, match="hears decision 1 after 1"):
            checks.on_message(process, decision(1, (2,), (2,)))
        checks.on_message(process, Drain(2, (Place(0),)))
        with pytest.raises(Violation, match="hears of round 2 after round 2"):
            checks.on_message(process, Drain(2, (Place(0),)))
        checks.on_message(process, decision(2, None, (2,)))

    def test_only_memory_is_drained_and_only_a_store_catches_up(self) -> None:
        checks, process = self.checks()
        with pytest.raises(Violation, match="has no memory"):
            checks.on_message(process, Drain(1, (Place(0),)))
        checks.on_message(process, Decision(1, (((2,), (2,)),), (), (), catch_up=True))
        checks.on_message(process, decision(1, (2,), (2,)))
        with pytest.raises(Violation, match="has no memory"):
            checks.on_message(process, Drain(2, (Place(1),)))
        with pytest.raises(Violation, match="has memory"):
            checks.on_message(process, Decision(2, (((2,), (2,)),), (), (), catch_up=True))

    def test_who_lives_does_not_go_forward(self) -> None:
        checks, process = self.checks()
        checks.on_message(process, decision(1, (9,), (9,)))
        checks.on_message(process, decision(2, (4,), None))
        with pytest.raises(Violation, match="processor 1 of worker 0 forward to"):
            checks.on_message(process, decision(3, (4,), (5,)))

    def test_who_has_drained_is_not_given_up_for_that(self) -> None:
        checks, process = self.checks()
        late = "it did not drain its links in time"
        checks.asked(process, Drain(2, (Place(0),)))
        checks.given_up(process, late)
        checks.answered(process, Drained(Place(0), 2, ()))
        checks.given_up(process, "nothing was heard of it")
        with pytest.raises(Violation, match="has drained its links in round 2"):
            checks.given_up(process, late)

    def test_what_was_lost_with_a_monitor_was_not_heard(self) -> None:
        world = job("tight", 1)
        process = world._processes[Place(0)]
        assert process is not None
        assert process.recovery is not None
        agent = process.recovery.agent
        lost = (
            Decision(agent.round + 1, ((None,) * len(agent.layout.processors),), (), ()),
            Drain(agent.round + 2, (Place(0),)),
        )
        for _ in range(2):
            for message in lost:  # delivered, and not taken
                world.checks.on_message(process, message)
            world.checks.connected_anew(process)

    def test_a_cut_is_at_what_is_complete(self) -> None:
        world = job("tight", 1)
        process = world._processes[Place(0)]
        assert process is not None
        assert process.recovery is not None
        generation = process.recovery.agent.worker.generation
        world.checks.on_message(process, Cut(generation, 0, (1,)))
        world.checks.on_message(process, Cut(generation + 1, 0, (NEVER,)))
        with pytest.raises(Violation, match="has not said to be complete"):
            world.checks.on_message(process, Cut(generation, 0, (NEVER,)))


class TestWhatIsComplete:
    """Of a worker with one group of a processor that has epochs, and one within a loop."""

    @staticmethod
    def closed(decisions: dict[int, Any]) -> Closed:
        return closed_of(layout("a chain, i chain2", "a>in>i", 1), decisions)

    def test_nothing_comes_at_a_time_of_which_it_was_notified(self) -> None:
        closed = self.closed({})
        closed.notified(1, (5, 0))
        closed.notified(1, (4, 7))
        found = [closed.was_notified(1, time) for time in ((5, 0), (4, 7), (3, 2), (4, 8), (5, 1), (6, 0))]
        assert found == [True, True, True, False, False, False]

    def test_what_was_said_to_be_complete_stays_so_for_what_stays_as_it_is(self) -> None:
        closed = self.closed({3: [[None, (2, 0)]], 4: [[(1,), None]]})
        closed.on_message(Completed(Place(0), 0, ((4,),)))
        assert (closed.has_reported(0, (3,)), closed.has_reported(0, (4,)), closed.has_reported(1, (3, 9))) == (
            True,
            False,
            True,
        )
        closed.at(3)
        assert (closed.has_reported(0, (3,)), closed.has_reported(1, (2, 0)), closed.has_reported(1, (1, 9))) == (
            True,
            False,
            True,
        )
        closed.on_message(Completed(Place(0), 0, ((9,),)))  # of an earlier generation
        held = [InMemory(upto, upto, (), ()) for upto in ((6,), (5, 0))]
        closed.on_message(Drained(Place(0), 4, tuple(held)))
        assert (closed.has_reported(0, (5,)), closed.has_reported(1, (4, 9))) == (True, True)
        closed.at(4)
        assert (closed.has_reported(0, (0,)), closed.has_reported(0, (1,)), closed.has_reported(1, (4, 9))) == (
            True,
            False,
            True,
        )

    def test_what_is_taken_back_may_be_notified_again(self) -> None:
        closed = self.closed({2: [[(3,), None]]})
        closed.notified(0, (2,))
        closed.notified(0, (5,))
        closed.at(2)
        assert [closed.was_notified(0, (epoch,)) for epoch in (2, 3, 5)] == [False] * 3
        assert [closed.has_reported(0, (epoch,)) for epoch in (2, 3, 5)] == [True, False, False]


class TestExactlyOnce:
    def test_a_repeated_epoch_must_be_the_same(self) -> None:
        outside = Outside()
        outside.publish("out", 0, (1,), [1, 2])
        outside.publish("out", 0, (1,), [2, 1])
        assert outside.repeated == 1
        with pytest.raises(Contradiction, match=r"gave at time \(1,\) \[1, 2\], and now \[1\]"):
            outside.publish("out", 0, (1,), [1])

    def test_nothing_may_be_lost_or_added(self) -> None:
        outside = Outside()
        outside.publish("out", 0, (1,), [1])
        outside.publish("out", 1, (1,), [2])
        outside.compare({("out", (1,)): [1, 2]})
        with pytest.raises(Violation, match="must give"):
            outside.compare({("out", (1,)): [1, 2, 2]})
        with pytest.raises(Violation, match="must give nothing"):
            outside.compare({})


class TestAtLeastOnce:
    @staticmethod
    def commits(*commits: list[Any]) -> Outside:
        outside = Outside()
        flow = Dataflow()
        flow.source("in", Iterable([1])).to(Callback(print), name="out")
        outside.isolated(flow.graph, Nothing())
        for records in commits:
            outside.commit("out", 0, (0,), records)
        return outside

    def test_it_may_repeat(self) -> None:
        self.commits([1, 2], [2, 1], [1, 2]).compare({("out", (0,)): [1, 2]})

    @pytest.mark.parametrize("commits", [([1], [1, 2]), ([1, 2], [1, 2], [1, 1, 2]), ([1, 3], [1, 2])])
    def test_it_may_not_repeat_otherwise(self, commits: tuple[list[int], ...]) -> None:
        with pytest.raises(Violation, match=r"promised to be repeating, and is (convergent|divergent)"):
            self.commits(*commits).compare({("out", (0,)): [1, 2]})

    def test_it_may_not_lose(self) -> None:
        with pytest.raises(Violation, match=r"is gap: it gave at time.*must give"):
            self.commits([1], [1]).compare({("out", (0,)): [1, 2]})
        with pytest.raises(Violation, match=r"is gap: it gave at time.*must give"):
            self.commits([1]).compare({("out", (0,)): [1, 1]})

    def test_it_may_not_be_wrong(self) -> None:
        with pytest.raises(Violation, match=r"is divergent: it gave at time.*\[1, 2, 3\], and must give \[1, 2\]"):
            self.commits([1, 2, 3]).compare({("out", (0,)): [1, 2]})

    def test_its_writer_forgets_what_was_not_committed(self) -> None:
        outside = Outside()
        writer = RecordingSink(outside, Nothing(), "out", exactly_once=False).open(0, 1)
        writer.write(3, [1])
        writer.commit(3)
        writer.write(4, [2])
        writer.abort()
        writer.commit(4)
        assert outside.commits == {"out": [(0, (3,), [1]), (0, (4,), [])]}


class TestSources:
    @staticmethod
    def partition(outside: Outside) -> Any:
        source = Iterable(list(range(9)), batch=3, epoch_every=3)
        return WatchedSource(outside, source, "in").partitions(0, 1)[0]

    def test_what_was_acknowledged_is_never_read_again(self) -> None:
        outside = Outside()
        partition = self.partition(outside)
        for _ in range(3):
            assert isinstance(partition.read(), Chunk)
        partition.ack(6)
        partition.seek(6)
        other = self.partition(outside)
        other.seek(6)
        with pytest.raises(Violation, match="more was acknowledged"):
            other.seek(3)
        with pytest.raises(Violation, match="more was acknowledged"):
            other.seek(None)

    def test_a_position_is_one_where_it_has_been(self) -> None:
        with pytest.raises(Violation, match="never been"):
            self.partition(Outside()).seek(3)

    def test_all_is_acknowledged_in_the_end(self) -> None:
        outside = Outside()
        partition = self.partition(outside)
        while not isinstance(partition.read(), End):
            pass
        partition.ack(6)
        with pytest.raises(Violation, match="up to 6 only"):
            outside.check_acknowledged()
        partition.ack(9)
        outside.check_acknowledged()

    def test_a_look_back_after_the_end_needs_no_other_acknowledgement(self) -> None:
        outside = Outside()
        partition = self.partition(outside)
        while not isinstance(partition.read(), End):
            pass
        partition.ack(9)
        outside.read("in", partition.name, 5)  # as far as it gives its input at that time
        outside.check_acknowledged()


def broken(name: str, workers: int, seeds: range, kinds: tuple[str, ...] = ("kill",)) -> str:
    """The first error that a seed meets."""
    calm = World(PROGRAMS[name], workers, -1, ())
    calm.run()
    expected = calm.outside.result()
    for seed in seeds:
        world = World(PROGRAMS[name], workers, seed, kinds)
        try:
            world.run(20_000)
            world.outside.compare(expected)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return "nothing"


class TestBrokenJobs:
    def test_output_that_goes_out_too_early_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def at_once(self: Any, ctx: Any, port: int, time: Any, batch: Any) -> None:
            self._effects.append(Captured(self._node, time, batch))

        monkeypatch.setattr(StagedEnd, "on_batch", at_once)
        with pytest.raises(Violation, match="not durable"):
            World(PROGRAMS["loop"], 2, 0, ()).run()

    def test_a_survivor_that_is_made_anew_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from timely.worker import restoring

        begin = restoring._begin

        def forget(worker: Any, generation: int, *rest: Any) -> None:
            begin(worker, generation, *rest)
            for runtime in worker.runtimes:
                if runtime.operator.state is not None and generation > 1:
                    again = restoring.build_operator(runtime.processor, worker.effects, worker.staged)
                    again.state.restore(
                        runtime.operator.state.snapshot(
                            restoring.Frontier.top(len(runtime.processor.node.shift.add) or 1),
                            restoring.Frontier.empty(len(runtime.processor.node.shift.add) or 1),
                        )
                    )
                    runtime.operator = again

        monkeypatch.setattr(restoring, "_begin", forget)
        assert "new operator" in broken("logged_exchange", 3, range(60))

    def test_output_that_is_published_again_without_need_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PublishedBounds, "holds", lambda self, p, time: False)
        assert "again, which it had done before it sealed" in broken("sinks", 2, range(40))

    def test_a_disk_that_loses_what_it_acknowledged_is_noticed(self) -> None:
        world = World(PROGRAMS["acyclic"], 1, 0, ())
        while not any(any(bound) for bound in world.checks.low.values()):
            world.step()
        newest = world.disk.names("worker-000/segment")[-1]
        assert newest
        process = world._processes[Place(0)]
        assert process is not None
        for name in world.disk.names("worker-000/segment")[1:]:
            world.disk.delete(name)
        world._kill(process, "killed")
        with pytest.raises(Exception, match=r"lost|missing|lack|not there|behind|older"):
            world.run(20_000)

    def test_a_process_can_die_at_every_io(self) -> None:
        world = World(PROGRAMS["sinks"], 2, 1, ("kill",))
        world.injector.rates = type(world.injector.rates)(until=100.0, kill_io=1.0)
        with pytest.raises(Killed):
            world.at_io(0)


def test_floats_may_differ_in_their_last_digits() -> None:
    assert same([("a", 0.1 + 0.2)], [("a", 0.3)])
    assert not same([("a", 0.3001)], [("a", 0.3)])
    assert same([{"k": float("nan")}], [{"k": float("nan")}])
    assert not same([1], [1.0000001])
    assert not same([(1,)], [[1]])


class TestWhatIsDoneAgain:
    """Of a source that repeats, an operator that does not, and one behind that."""

    @staticmethod
    def sends(*, declared: bool = False) -> Sends:
        plan = layout("read source, dice any, out any", "read=>dice, dice=>out", 2, kept=True)
        infos = [replace(info, repeats=not (declared and info.name == "dice")) for info in plan.processors]
        return Sends(replace(plan, processors=tuple(infos)), 0)

    @staticmethod
    def done_twice(sends: Sends, processor: int, first: list[Any], second: list[Any], complete: int = 4) -> None:
        sends.sent(processor, 0, (3,), (3,), first)
        sends.taken_back(processor, (2,), (complete,))
        for record in reversed(second):
            sends.sent(processor, 0, (3,), (3,), [record])
        sends.complete(processor, (4,))

    def test_it_is_the_same_in_any_order_and_any_batches(self) -> None:
        self.done_twice(self.sends(), 1, [1, 2, 2], [2, 1, 2])

    @pytest.mark.parametrize("second", [[1, 2], [1, 2, 3], [1, 2, 2, 2], []])
    def test_otherwise_the_operator_is_named(self, second: list[Any]) -> None:
        with pytest.raises(
            Violation, match=r"operator 'dice' of worker 0 \(app.py:1\) sent \[1, 2, 2\].*nondeterministic"
        ):
            self.done_twice(self.sends(), 1, [1, 2, 2], second)

    def test_what_was_not_complete_may_have_been_something_else(self) -> None:
        self.done_twice(self.sends(), 1, [1, 2], [1, 2, 2], complete=3)

    def test_nobody_asks_what_is_behind_a_declared_nondeterminism(self) -> None:
        for processor in (1, 2):
            self.done_twice(self.sends(declared=True), processor, [1], [2])
        with pytest.raises(Violation):
            self.done_twice(self.sends(declared=True), 0, [1], [2])

    def test_what_is_kept_is_not_done_again(self) -> None:
        sends = self.sends()
        sends.sent(1, 0, (3,), (3,), [1])
        sends.taken_back(1, (0,), (4,))
        sends.taken_back(1, (4,), (0,))
        sends.complete(1, (9,))
