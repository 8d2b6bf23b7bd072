"""A session driven by hand: inputs, probes, captures, what holds a frontier back, and how it ends."""

from __future__ import annotations

import signal
import time as clock
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from libraries.columns.verbs.dataflow import Dataflow
from runtime.run import run
from runtime.session.cluster import Cluster
from runtime.session.explain import Hold, report
from runtime.session.session import Session
from runtime.sources.limits import Limits
from timely.dataflow.plan import compile_plan
from timely.errors import FalkirkError, OperatorError
from timely.io import Iterable, Memory, Scripted
from timely.io.interface import Chunk, End, Position, Wait
from timely.io.scripted import Pause
from timely.operators.base import Context, Operator
from timely.worker.worker import Worker


def summing() -> tuple[Dataflow, Any]:
    flow = Dataflow("sums")
    totals = flow.input("in").key_by(lambda x: 0).sum(over="time", name="sum").values()
    totals.capture("out")
    return flow, totals.probe("done")


def test_records_gather_until_the_time_moves_or_the_session_steps() -> None:
    flow, _ = summing()
    with Session(flow) as session:
        handle = session.input("in")
        records = [1, 2]
        handle.send(records)
        records.append(100)
        handle.send([3])
        assert handle.time == (0,)
        handle.advance_to(2)
        handle.send([10])
        session.step()
        assert session.captured("out") == [((0,), [6])]
        handle.advance_to((4,))
        session.step()
        assert session.captured("out") == [((0,), [6]), ((2,), [10])]
        handle.close()
        handle.close()
        assert handle.time is None
        session.run()


def test_records_and_columns_keep_their_order() -> None:
    flow = Dataflow()
    flow.input("in").map(lambda r: r if isinstance(r, int) else r["x"]).capture("out")
    with Session(flow) as session:
        session.input("in").send([1, 2])
        session.input("in").send(pl.DataFrame({"x": [3]}))
        session.input("in").send([4])
        session.input("in").close()
        session.run()
        assert [x for _, batch in session.captured("out") for x in batch] == [1, 2, 3, 4]


def test_misuse_of_inputs_is_explained() -> None:
    flow, _ = summing()
    with Session(flow) as session:
        handle = session.input("in")
        with pytest.raises(OperatorError, match="a list of records, a Polars frame or an Arrow table"):
            handle.send("text")
        handle.advance_to(3)
        with pytest.raises(OperatorError, match=r"'in' cannot advance to \(2,\): it is at \(3,\)"):
            handle.advance_to(2)
        with pytest.raises(OperatorError, match=r"cannot advance to \(4, 0\)"):
            handle.advance_to((4, 0))
        handle.close()
        for batch in ([1], pl.DataFrame({"x": [1]})):
            with pytest.raises(OperatorError, match="'in' is closed"):
                handle.send(batch)
        with pytest.raises(OperatorError, match="it is at its end"):
            handle.advance_to(5)


def test_unknown_names_list_the_known_ones() -> None:
    flow, probe = summing()
    with Session(flow) as session:
        with pytest.raises(FalkirkError, match="no input 'oops'; there are: in"):
            session.input("oops")
        with pytest.raises(FalkirkError, match=r"no operator 'oops'.*done, in, .*sum"):
            session.probe("oops")
        with pytest.raises(FalkirkError, match="'sum' is a sum, not a probe"):
            session.probe("sum")
        with pytest.raises(FalkirkError, match="'done' is a probe, not a capture"):
            session.captured(probe)


def test_a_probe_tells_times_apart() -> None:
    flow, probe = summing()
    with Session(flow) as session:
        handle, seen = session.input("in"), session.probe(probe)
        assert (seen.frontier, seen.done(0)) == (((0,),), False)
        handle.send([1])
        handle.advance_to(2)
        assert not seen.done(0), "the sum of epoch 0 has not been worked out yet"
        session.step()
        assert (seen.frontier, seen.done(1), seen.done((2,))) == (((2,),), True, False)
        handle.close()
        session.step()
        assert (seen.frontier, seen.done(10**9)) == ((), True)


def test_what_a_probe_says_is_done_has_been_captured() -> None:
    flow = Dataflow()
    stream = flow.input("in").map(abs)
    stream.capture("out")
    probe = stream.probe()
    with Session(flow) as session:
        session.input("in").send([-1])
        session.input("in").advance_to(1)
        assert session.probe(probe).done(0)
        assert session.captured("out") == [((0,), [1])]


def test_nested_inputs_take_nested_times() -> None:
    flow = Dataflow()
    sub = flow.scope("sub")
    flow.input("in", sub).keyed().sum(over="time").leave().capture("out")
    with Session(flow) as session:
        handle = session.input("in")
        handle.send([("a", 1)])
        handle.advance_to((0, 4))
        handle.send([("a", 2)])
        handle.advance_to((1, 4))
        session.step()
        assert session.captured("out") == [((0,), [("a", 1)]), ((0,), [("a", 2)])]
        with pytest.raises(OperatorError, match="cannot advance to"):
            handle.advance_to(2)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_empty_batches_do_not_stall_a_frontier(workers: int) -> None:
    """Every frontier moves on when nothing was sent, when an empty batch was, and when an operator made one."""

    class Silent(Operator):
        def on_batch(self, ctx: Context, port: int, time: Any, batch: Any) -> None:
            ctx.send([])
            ctx.send_at((time[0] + 5,), pl.DataFrame({"x": []}))
            ctx.notify_at()

        def on_notify(self, ctx: Context, time: Any) -> None:
            ctx.send([])

    flow = Dataflow()
    stream = flow.input("in").filter(lambda x: x > 0).unary("silent", Silent).exchange(abs)
    looped = stream.iterate(lambda i: i.map(abs).filter(lambda x: False).exchange(abs))
    yes, no = looped.keyed().count().records().branch(lambda kv: True)
    probe = yes.concat(no).map_batches(lambda b: []).broadcast().probe()
    flow.input("frames").to_columns().filter(pl.col("x") > 100).exchange("x").probe("columns")
    cluster = Cluster(flow, workers, seed=3)
    for epoch in range(6):
        for session in cluster.sessions:
            session.input("in").send([] if epoch % 2 else [0, 1])
            session.input("frames").send(pl.DataFrame({"x": [1] if epoch % 2 else []}, schema={"x": pl.Int64}))
            for name in ("in", "frames"):
                session.input(name).advance_to(epoch + 1)
        cluster.quiesce()
        for session in cluster.sessions:
            assert session.probe(probe).frontier == ((epoch + 1,),)
            assert session.probe("columns").frontier == ((epoch + 1,),)


def test_the_worker_that_is_last_to_close_is_not_done_before_it_has_told_the_others() -> None:
    flow = Dataflow()
    flow.input("in").exchange(abs).capture()
    cluster = Cluster(flow, 2, None)
    first, last = cluster.sessions
    first.input("in").close()
    cluster.quiesce()
    last.input("in").close()
    assert not last.done
    last.step()
    assert last.done
    assert not first.done
    cluster.run()
    assert first.done


def test_frames_of_an_older_generation_are_dropped() -> None:
    flow = Dataflow()
    flow.input("in").exchange(lambda x: x).capture("out")
    plan = compile_plan(flow.graph, 2)
    old, new = Worker(plan, 0, generation=3), Worker(plan, 1, generation=4)
    old.feed(0, (0,), list(range(50)))
    frame = old.take_frames(quiet=True)[1]
    assert frame.messages
    before = new.tracker.active
    new.receive(frame)
    assert new.run()
    assert new.tracker.active == before
    assert new.take_effects() == []
    frame.generation = 4
    new.receive(frame)
    new.run()
    assert len(new.take_effects()) == 1


def test_step_until_says_when_it_would_wait_for_ever() -> None:
    flow, probe = summing()
    with Session(flow) as session:
        session.input("in").send([1])
        with pytest.raises(FalkirkError, match=r"can never come true.*advance_to\(\) or close\(\)"):
            session.step_until(lambda: session.probe(probe).done(0))
        with pytest.raises(FalkirkError, match="which only the caller can feed"):
            session.run()


def test_step_until_keeps_its_timeout() -> None:
    flow = Dataflow()
    flow.source("slow", Scripted([Pause(60)])).capture("out")
    with Session(flow) as session:
        began = clock.monotonic()
        with pytest.raises(FalkirkError, match=r"did not come true within 0\.1 s"):
            session.step_until(lambda: False, timeout=0.1)
        assert 0.1 <= clock.monotonic() - began < 5


def test_step_waits_for_a_sleeping_source_and_not_longer() -> None:
    flow = Dataflow()
    flow.source("slow", Scripted([Pause(0.4), 1])).capture("out")
    with Session(flow) as session:
        began, cpu = clock.monotonic(), clock.process_time()
        session.run()
        assert clock.monotonic() - began >= 0.4
        assert clock.process_time() - cpu < 0.2, "it should sleep, not spin"
        assert session.captured("out") == [((0,), [1])]


class TestExplain:
    """The holders of this frontier: location, time, and which capability or message."""

    def test_an_input_that_stands_still(self) -> None:
        flow = Dataflow()
        a, b = flow.input("a"), flow.input("b")
        a.key_by(abs).count(name="count").records().concat(b.map(abs)).probe("end")
        with Session(flow) as session:
            session.input("a").advance_to(5)
            session.input("b").advance_to(2)
            session.step()
            (hold,) = session.explain("end")
            assert isinstance(hold, Hold)
            assert (hold.what, hold.time, hold.count) == ("the position", (2,), 1)
            assert "input 'b'" in hold.where
            assert "test_session.py:" in str(hold)
            assert [h.time for h in session.explain("count")] == [(5,)]
            session.input("b").close()
            session.step()
            assert ["'a'" in h.where for h in session.explain("end")] == [True]
            session.input("a").close()
            session.step()
            assert session.explain("end") == []
            with pytest.raises(FalkirkError, match="no operator 'nowhere'"):
                session.explain("nowhere")

    def test_a_message_on_its_way_and_work_of_another_worker(self) -> None:
        flow = Dataflow()
        flow.input("in").exchange(abs, name="moved").distinct(name="set").probe("end")
        cluster = Cluster(flow, 2, None)
        for session in cluster.sessions:
            session.input("in").send(list(range(50)))
            session.input("in").close()
        for session in cluster.sessions:
            session.step()
        for pair, frames in cluster.in_flight.items():
            for frame in frames:
                frame.messages.clear()  # only the progress arrives
            assert frames, pair
        cluster.quiesce()
        holds = cluster.sessions[0].explain("end")
        assert {(h.what, h.time) for h in holds} >= {("message in flight", (0,))}
        assert any("'moved'" in h.where for h in holds)
        assert "waits for (0,) to be complete" in report(cluster.sessions[0].worker)

    def test_a_kept_capability(self) -> None:
        class Keeper(Operator):
            def on_batch(self, ctx: Context, port: int, time: Any, batch: Any) -> None:
                self.kept = [ctx.retain((3,)), ctx.retain((3,))]

        flow = Dataflow()
        flow.input("in").unary("keeper", Keeper, holds=True).distinct(name="after").probe("end")
        with Session(flow) as session:
            session.input("in").send([1])
            session.input("in").close()
            session.step()
            (hold,) = session.explain("end")
            assert hold.what.startswith("a kept capability")
            assert (hold.time, hold.count) == ((3,), 2)
            assert "'keeper'" in str(hold)
            assert str(hold).endswith("at (3,) (x2)")
            assert "'keeper'" in report(session.worker)

    def test_a_loop_that_goes_on(self) -> None:
        flow = Dataflow()
        flow.input("in").iterate(lambda i: i.map(abs).exchange(abs, name="round")).probe("end")
        cluster = Cluster(flow, 2, None)
        cluster.sessions[0].input("in").send(list(range(10)))
        for session in cluster.sessions:
            session.input("in").close()
        for _ in range(4):
            cluster.step()
        holds = [h for session in cluster.sessions for h in session.explain("end")]
        assert any("'round'" in h.where and h.time[0] == 0 and len(h.time) == 2 for h in holds)

    @pytest.mark.skipif(not hasattr(signal, "SIGQUIT"), reason="needs SIGQUIT")
    def test_ctrl_backslash_prints_it_and_the_job_goes_on(self, capfd: pytest.CaptureFixture[str]) -> None:
        flow = Dataflow()
        flow.input("in").distinct(name="waiting").capture("out")

        def drive(session: Session) -> None:
            session.input("in").send([7])
            session.step()
            signal.raise_signal(signal.SIGQUIT)

        before = signal.getsignal(signal.SIGQUIT)
        assert run(flow, drive=drive).captured("out") == [((0,), [7])]
        assert signal.getsignal(signal.SIGQUIT) == before
        text = capfd.readouterr().err
        assert "distinct 'waiting'" in text
        assert "waits for (0,) to be complete, held by:" in text
        assert "the position of input 'in'" in text


class Watched:
    """A source of one record an epoch that remembers what was done to it."""

    name = "watched"

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.read_so_far = 0
        self.acked: list[Position] = []
        self.closed = 0

    def partitions(self, worker: int, workers: int) -> Sequence[Watched]:
        return [self] if worker == 0 else []

    def read(self) -> Chunk | Wait | End:
        if self.read_so_far == self.epochs:
            return End()
        self.read_so_far += 1
        return Chunk(self.read_so_far - 1, [self.read_so_far - 1], self.read_so_far, closes=True)

    def seek(self, position: Position) -> None:
        raise AssertionError("nobody asked for that")

    def ack(self, position: Position) -> None:
        self.acked.append(position)

    def close(self) -> None:
        self.closed += 1


def test_a_source_is_told_what_is_never_needed_again() -> None:
    source, sink = Watched(10), Memory()
    flow = Dataflow()
    flow.source("in", source).to(sink)
    with Session(flow) as session:
        while not session.worker.done:
            session.step()
            committed = len(sink.epochs)
            assert all(isinstance(p, int) and p <= committed for p in source.acked)
    assert source.acked == sorted(set(map(int, source.acked)))  # type: ignore[arg-type]
    assert source.acked[-1] == 10
    assert source.closed == 1


def test_a_source_waits_for_another_one_that_is_behind_without_being_read() -> None:
    ahead = Watched(100)
    flow = Dataflow()
    joined = flow.source("ahead", ahead).concat(flow.input("behind"))
    joined.capture("out")
    probe = joined.probe()
    with Session(flow, limits=Limits(epochs=4)) as session:
        with pytest.raises(FalkirkError, match="can never come true"):
            session.step_until(lambda: session.probe(probe).done(50))
        assert ahead.read_so_far == 4
        session.input("behind").advance_to(20)
        with pytest.raises(FalkirkError, match="can never come true"):
            session.step_until(lambda: session.probe(probe).done(50))
        assert ahead.read_so_far == 24
        session.input("behind").close()
        session.run()
        assert ahead.read_so_far == 100


def test_leaving_early_commits_whole_epochs_and_nothing_else() -> None:
    for error in (None, ValueError("enough")):
        source, sink = Watched(10), Memory()
        flow = Dataflow()
        flow.source("in", source).to(sink)
        try:
            with Session(flow) as session:
                for _ in range(4):
                    session.step()
                if error is not None:
                    raise error
        except ValueError:
            assert error is not None
        assert 0 < len(sink.epochs) <= 4
        assert sink.records() == sink.epochs
        assert source.closed == 1


def test_limits_that_allow_nothing_are_refused() -> None:
    for limits in ({"epochs": 0}, {"bytes": 0}):
        with pytest.raises(FalkirkError, match="from 1 up"):
            Limits(**limits)


def test_an_input_that_nobody_feeds_is_refused_also_beside_a_source() -> None:
    flow = Dataflow()
    flow.source("lines", Iterable([1])).concat(flow.input("by hand")).capture("out")
    with pytest.raises(FalkirkError, match="nothing feeds the input 'by hand'"):
        run(flow)


def test_closing_a_finished_session_loses_nothing_and_acknowledges() -> None:
    source, seen = Watched(3), list[Any]()
    flow = Dataflow()
    flow.source("in", source).capture()
    with Session(flow, on_capture=lambda node, at, batch: seen.extend(batch)) as session:
        while not session.worker.done:
            session.step()
    assert seen == [0, 1, 2]
    assert source.acked[-1] == 3


def test_a_session_may_be_closed_twice_and_stays_closed() -> None:
    flow, _ = summing()
    session = Session(flow)
    session.input("in").close()
    session.run()
    session.close()
    session.close()
    session.abort()


def test_run_reports_statistics_and_sorts_what_was_captured_by_time() -> None:
    flow = Dataflow()
    flow.source("in", Iterable(range(100), epoch_every=10, batch=5)).capture("out")
    heard: list[int] = []
    result = run(flow, on_stats=lambda stats: heard.append(stats[0].records))
    assert result.records == heard[-1] == 100
    assert result.stats[0].done
    times = [time for time, _ in result.captured("out")]
    assert times == sorted(times)
    assert [x for _, batch in result.captured("out") for x in batch] == list(range(100))
    with pytest.raises(FalkirkError, match="no capture 'oops'; there are: out"):
        result.captured("oops")
    with pytest.raises(FalkirkError, match="at least one worker"):
        run(flow, workers=0)


def test_a_probe_in_a_scope_looks_at_all_coordinates() -> None:
    flow = Dataflow()
    numbers = flow.input("in")
    probe = numbers.enter(flow.scope("inner"), at=lambda n: n).probe("seen")
    with Session(flow) as session:
        given, seen = session.input("in"), session.probe(probe)
        given.send([3])
        given.advance_to(1)
        session.step_until(lambda: seen.done(0))
        assert seen.done((0, 3))
        assert not seen.done(1)
        assert not seen.done((1, 0))
        for time in ((0,), (0, 1, 2), "0", (0.5, 1), (0, -1)):
            with pytest.raises(OperatorError, match=r"probe 'seen' \(.*\) watches times of inner: "):
                seen.done(time)  # type: ignore[arg-type]
        for at in ((2, 0), "2", (1.5,), [2]):
            with pytest.raises(OperatorError, match="input 'in' cannot advance to"):
                given.advance_to(at)  # type: ignore[arg-type]
        given.close()
