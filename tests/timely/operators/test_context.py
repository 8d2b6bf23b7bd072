"""The use of times by operators: capabilities, notifications, jobs, and the errors for whoever breaks the rules."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from runtime.run import run
from runtime.session.cluster import Cluster
from runtime.session.session import Session
from timely.data.batch import Batch
from timely.dataflow.wire import Probe
from timely.errors import FalkirkError, OperatorError
from timely.io import Iterable
from timely.operators.base import Capability, Context, Operator
from timely.operators.window_shapes import Tumbling
from timely.time import END, Time


class Scripted(Operator):
    """Does with every batch, and with every notification, what the test says."""

    def __init__(
        self,
        on_batch: Callable[[Context, Time, Batch], Any],
        on_notify: Callable[[Context, Time], Any] = lambda ctx, time: None,
        on_result: Callable[[Context, Time, Any], Any] = lambda ctx, time, result: None,
    ) -> None:
        self._on_batch, self._on_notify, self._on_result = on_batch, on_notify, on_result

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._on_batch(ctx, time, batch)

    def on_notify(self, ctx: Context, time: Time) -> None:
        self._on_notify(ctx, time)

    def on_result(self, ctx: Context, time: Time, result: Any) -> None:
        self._on_result(ctx, time, result)


def _send(ctx: Context, time: Time, result: Any) -> None:
    ctx.send([result])


def program(*events: Any, holds: bool = True, notifies: bool = True, depth: int = 1) -> tuple[Dataflow, Probe]:
    """input -> scripted operator -> capture and probe."""
    flow = Dataflow()
    stream = flow.input("in")
    for level in range(1, depth):
        stream = stream.enter(flow.scope(f"s{level}", stream.scope))
    out = stream.unary("under test", lambda: Scripted(*events), holds=holds, notifies=notifies)
    out.capture("out")
    return flow, out.probe()


def keep(kept: list[Capability]) -> Callable[[Context, Time, Batch], None]:
    return lambda ctx, time, batch: kept.append(ctx.retain())


MISUSE: list[tuple[str, Callable[[Context], Any]]] = [
    ("cannot send at (4,) from (5,)", lambda ctx: ctx.send_at((4,), [1])),
    ("cannot send at (5, 0): times must have 1 coordinate here", lambda ctx: ctx.send_at((5, 0), [1])),
    ("cannot send at (): times must have 1 coordinate here", lambda ctx: ctx.send_at((), [1])),
    ("cannot ask for a notification at 6: a time is a tuple: (6,)", lambda ctx: ctx.notify_at(6)),  # type: ignore[arg-type]
    ("cannot retain a capability at (5.5,): ", lambda ctx: ctx.retain((5.5,))),  # type: ignore[arg-type]
    ("cannot start a job at [5]: ", lambda ctx: ctx.start(lambda: 1, [5])),  # type: ignore[arg-type]
    ("cannot ask for a notification at (0,) from (5,)", lambda ctx: ctx.notify_at((0,))),
    ("cannot retain a capability at (4,) from (5,)", lambda ctx: ctx.retain((4,))),
    ("cannot start a job at (4,) from (5,)", lambda ctx: ctx.start(lambda: 1, (4,))),
    ("cannot delay a capability at (5,) from (6,)", lambda ctx: ctx.retain((6,)).delayed((5,))),
    ("cannot downgrade a capability at (6,) from (7,)", lambda ctx: ctx.retain((7,)).downgrade((6,))),
    ("a capability for (6,) in an event at (5,)", lambda ctx: ctx.retain((6,)).send([1])),
]


@pytest.mark.parametrize(("words", "act"), MISUSE, ids=[words for words, _ in MISUSE])
@pytest.mark.parametrize("workers", [1, 2])
def test_going_back_in_time_is_an_error_that_names_the_operator(
    words: str, act: Callable[[Context], Any], workers: int
) -> None:
    flow, _ = program(lambda ctx, time, batch: act(ctx))
    cluster = Cluster(flow, workers, None)
    handle = cluster.sessions[0].input("in")
    handle.advance_to(5)
    handle.send([1])
    with pytest.raises(OperatorError) as caught:
        cluster.sessions[0].step()
    assert words in str(caught.value)
    assert "'under test'" in str(caught.value)
    assert "test_context.py:" in str(caught.value)


def test_a_dropped_capability_is_of_no_use_and_dropping_twice_is_harmless() -> None:
    def act(ctx: Context, time: Time, batch: Batch) -> None:
        capability = ctx.retain()
        assert repr(capability) == "Capability((0,))"
        capability.drop()
        capability.drop()
        assert repr(capability) == "Capability(dropped)"
        for use in (lambda: capability.send([1]), lambda: capability.delayed(time), lambda: capability.downgrade(time)):
            with pytest.raises(OperatorError, match="that it had dropped"):
                use()

    flow, probe = program(act)
    with Session(flow) as session:
        session.input("in").send([1])
        session.input("in").close()
        session.run()
        assert session.probe(probe).frontier == ()


def test_what_was_not_declared_is_refused() -> None:
    acts: list[tuple[str, Callable[[Context], Any]]] = [
        ("notifies=False", lambda ctx: ctx.notify_at()),
        ("holds=False", lambda ctx: ctx.retain()),
        ("holds=False", lambda ctx: ctx.start(lambda: 1)),
    ]
    for words, act in acts:
        flow, _ = program(lambda ctx, time, batch, act=act: act(ctx), holds=False, notifies=False)
        with Session(flow) as session:
            session.input("in").send([1])
            with pytest.raises(OperatorError, match=rf"'under test'.*{words}"):
                session.step()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_capability_holds_the_frontier_until_it_is_dropped(workers: int) -> None:
    kept: list[Capability] = []
    flow, probe = program(keep(kept))
    cluster = Cluster(flow, workers, None)
    first = cluster.sessions[0]
    first.input("in").advance_to(3)
    first.input("in").send([1])
    for session in cluster.sessions:
        session.input("in").advance_to(9)
    cluster.quiesce()
    for session in cluster.sessions:
        assert session.probe(probe).frontier == ((3,),)
        assert session.probe(probe).done(2)
        assert not session.probe(probe).done(3)
        assert not session.probe(probe).done(8)
    kept[0].downgrade((5,))
    second = kept[0].delayed((7,))
    cluster.quiesce()
    assert [session.probe(probe).frontier for session in cluster.sessions] == [((5,),)] * workers
    kept[0].drop()
    cluster.quiesce()
    assert [session.probe(probe).frontier for session in cluster.sessions] == [((7,),)] * workers
    second.drop()
    cluster.quiesce()
    assert [session.probe(probe).frontier for session in cluster.sessions] == [((9,),)] * workers
    for session in cluster.sessions:
        session.input("in").close()
    cluster.run()


def test_a_capability_is_used_in_a_notification_at_its_time() -> None:
    kept: list[Capability] = []

    def later(ctx: Context, time: Time, batch: Batch) -> None:
        kept.append(ctx.retain((4,)))
        ctx.notify_at((4,))

    def now(ctx: Context, time: Time) -> None:
        kept[0].send([time])
        kept[0].drop()

    flow, _ = program(later, now)
    with Session(flow) as session:
        session.input("in").send([1])
        session.input("in").advance_to(4)
        session.step()
        assert session.captured("out") == []
        session.input("in").advance_to(5)
        session.step()
        assert session.captured("out") == [((4,), [(4,)])]


def test_notifications_come_least_time_first_once_each_and_only_when_complete() -> None:
    seen: list[Time] = []

    def ask(ctx: Context, time: Time, batch: Batch) -> None:
        for ahead in (3, 1, 0, 1):
            ctx.notify_at((time[0] + ahead,))

    flow, _ = program(ask, lambda ctx, time: seen.append(time))
    with Session(flow) as session:
        handle = session.input("in")
        handle.send([1])
        session.step()
        assert seen == []
        handle.advance_to(1)
        handle.send([1])
        session.step()
        assert seen == [(0,)]
        handle.advance_to(3)
        session.step()
        assert seen == [(0,), (1,), (2,)]
        handle.close()
        session.run()
        assert seen == [(0,), (1,), (2,), (3,), (4,)]


def test_a_notification_in_a_scope_waits_for_the_very_time_it_was_asked_for() -> None:
    seen: list[Time] = []
    flow, _ = program(lambda ctx, time, batch: ctx.notify_at((1, 0)), lambda ctx, time: seen.append(time), depth=2)
    with Session(flow) as session:
        session.input("in").send([1])
        session.step()
        session.input("in").advance_to(1)
        session.step()
        assert seen == []
        session.input("in").advance_to(2)
        session.step()
        assert seen == [(1, 0)]


def test_a_notification_may_ask_for_the_next_and_send_later() -> None:
    def ask(ctx: Context, time: Time) -> None:
        ctx.send_at((time[0] + 1,), [time[0]])
        if time[0] < 3:
            ctx.notify_at((time[0] + 1,))

    flow, probe = program(lambda ctx, time, batch: ctx.notify_at(), ask)
    for workers in (1, 2):
        cluster = Cluster(flow, workers, None)
        cluster.sessions[0].input("in").send([1])
        for session in cluster.sessions:
            session.input("in").close()
        cluster.run()
        assert cluster.captured("out") == [((n + 1,), [n]) for n in range(4)]
        assert all(session.probe(probe).frontier == () for session in cluster.sessions)


@pytest.mark.parametrize("depth", [2, 3])
def test_capabilities_work_in_scopes(depth: int) -> None:
    kept: list[Capability] = []
    flow, probe = program(keep(kept), depth=depth)
    with Session(flow) as session:
        session.input("in").send([1])
        session.input("in").close()
        session.step()
        zeros = (0,) * depth
        assert session.probe(probe).frontier == (zeros,)
        kept[0].downgrade((*zeros[:-1], 5))
        session.step()
        assert session.probe(probe).frontier == ((*zeros[:-1], 5),)
        assert session.probe(probe).done((*zeros[:-1], 4))
        kept[0].drop()
        session.run()


def test_a_capability_that_is_never_dropped_is_an_error_and_not_a_hang() -> None:
    flow, _ = program(keep([]))
    with Session(flow) as session:
        session.input("in").send([1])
        session.input("in").close()
        with pytest.raises(FalkirkError, match="never drops") as caught:
            session.run()
        assert "'under test'" in str(caught.value)
        assert "(0,)" in str(caught.value)


class TestJobs:
    """`ctx.start`: the driver runs the job, holds its time, and brings the result back as an event."""

    def test_a_result_returns_as_an_event_at_its_time_and_the_time_is_held_meanwhile(self) -> None:
        release = threading.Event()

        def job() -> str:
            release.wait(120)
            return threading.current_thread().name

        flow, probe = program(
            lambda ctx, time, batch: ctx.start(job, (2,)),
            lambda ctx, time: None,
            lambda ctx, time, result: ctx.send([(time, ctx.time, result)]),
        )
        with Session(flow) as session:
            session.input("in").send([1])
            session.input("in").advance_to(7)
            for _ in range(5):
                session.step()
            assert session.probe(probe).frontier == ((2,),)
            release.set()
            session.step_until(lambda: session.probe(probe).done(6), timeout=120)
            ((time, [(at, event, thread)]),) = session.captured("out")
            assert time == at == event == (2,)
            assert thread != threading.current_thread().name

    def test_the_job_is_not_over_before_all_results_are_back(self) -> None:
        flow, _ = program(
            lambda ctx, time, batch: [ctx.start(lambda n=n: n * n) for n in batch],
            lambda ctx, time: None,
            lambda ctx, time, result: ctx.send([result]),
        )
        with Session(flow) as session:
            session.input("in").send(list(range(20)))
            session.input("in").close()
            session.run()
            assert sorted(x for _, batch in session.captured("out") for x in batch) == [n * n for n in range(20)]

    @pytest.mark.parametrize("workers", [1, 2])
    def test_a_job_holds_back_a_notification_that_became_complete_before_it_was_started(self, workers: int) -> None:
        """Both operators are notified of epoch 3, which is complete for both at the same moment; the first has more to say."""
        seen: list[Any] = []

        def slow(ctx: Context, time: Time) -> None:
            ctx.start(lambda: "late")

        flow = Dataflow()
        first = flow.input("in").unary(
            "first",
            lambda: Scripted(lambda ctx, time, batch: (ctx.send(batch), ctx.notify_at((3,))), slow, _send),
            holds=True,
        )
        second = first.unary(
            "second",
            lambda: Scripted(
                lambda ctx, time, batch: (seen.append((time, batch)), ctx.notify_at((3,))),
                lambda ctx, time: seen.append("complete"),
            ),
        )
        second.capture("out")
        cluster = Cluster(flow, workers, seed=1)
        for session in cluster.sessions:
            session.input("in").close() if session.index else session.input("in").send([1])
        cluster.quiesce()
        cluster.sessions[0].input("in").close()
        while not all(session.done for session in cluster.sessions):
            cluster.quiesce()
        assert seen == [((0,), [1]), ((3,), ["late"]), "complete"]

    def test_a_result_may_start_the_next_job(self) -> None:
        def again(ctx: Context, time: Time, result: int) -> None:
            ctx.send([result])
            if result < 5:
                ctx.start(lambda: result + 1)

        flow, _ = program(lambda ctx, time, batch: ctx.start(lambda: 0), lambda ctx, time: None, again)
        with Session(flow) as session:
            session.input("in").send([1])
            session.input("in").close()
            session.run()
            assert [batch for _, batch in session.captured("out")] == [[n] for n in range(6)]

    def test_a_failing_job_names_operator_line_and_time(self) -> None:
        flow, _ = program(lambda ctx, time, batch: ctx.start(lambda: 1 // 0))
        with Session(flow) as session:
            session.input("in").advance_to(4)
            session.input("in").send([1])
            session.input("in").close()
            with pytest.raises(OperatorError) as caught:
                session.run()
        for words in ("'under test'", "test_context.py:", "(4,)", "ZeroDivisionError"):
            assert words in str(caught.value)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    def test_an_error_in_on_result_names_the_operator(self) -> None:
        flow, _ = program(
            lambda ctx, time, batch: ctx.start(lambda: 0), lambda ctx, time: None, lambda ctx, time, result: 1 // result
        )
        with Session(flow) as session:
            session.input("in").send([1])
            session.input("in").close()
            with pytest.raises(OperatorError, match=r"'under test'.*ZeroDivisionError"):
                session.run()

    def test_jobs_on_several_workers_hold_everybodys_frontier(self) -> None:
        release = threading.Event()
        flow, probe = program(
            lambda ctx, time, batch: ctx.start(lambda: release.wait(120)),
            lambda ctx, time: None,
            lambda ctx, time, result: ctx.send([result]),
        )
        cluster = Cluster(flow, 2, None)
        cluster.sessions[1].input("in").send([1])
        for session in cluster.sessions:
            session.input("in").close()
        cluster.quiesce()
        assert [session.probe(probe).frontier for session in cluster.sessions] == [((0,),)] * 2
        assert not any(session.worker.done for session in cluster.sessions)
        release.set()
        cluster.sessions[1].step_until(lambda: cluster.captured("out") != [], timeout=120)
        cluster.run()
        assert cluster.captured("out") == [((0,), [True])]

    def test_a_result_that_starts_another_job_holds_its_time_without_a_gap(self) -> None:
        """The event itself holds its time: asking for a notification in it must not let others believe it is over."""

        def again(ctx: Context, time: Time, result: int) -> None:
            ctx.send([("k", 1)])
            ctx.notify_at((time[0] + 1,))
            if result:
                ctx.start(lambda: result - 1)

        def begin(ctx: Context, time: Time, batch: Batch) -> None:
            ctx.send([("k", 1)])
            ctx.start(lambda: 2)

        flow = Dataflow()
        asker = flow.input("in").unary("asker", lambda: Scripted(begin, lambda ctx, time: None, again), holds=True)
        asker.keyed().count(over="time").capture("out")
        with Session(flow) as session:
            session.input("in").send([1])
            session.input("in").close()
            session.run()
            assert session.captured("out") == [((0,), [("k", 4)])]


def at_the_end(does: Callable[[Context, Time, Batch], Any]) -> list[Any]:
    """The output of an operator behind windows, when the last of them closes as all input is over."""
    flow = Dataflow()
    clicks = flow.source("clicks", Iterable([("ann", 1), ("ann", 3), ("ann", 12)], epoch_every=1)).keyed()
    windows = clicks.window(Tumbling(10), time=lambda at: at).count()
    windows.unary("under test", lambda: Scripted(does), holds=True).capture("out")
    return [(time, [n for _, n in batch]) for time, batch in run(flow).captured("out")]


def test_what_is_sent_later_than_the_end_is_sent_at_the_end() -> None:
    assert at_the_end(lambda ctx, time, batch: ctx.send_at((time[0] + 3,), batch)) == [((5,), [2]), ((END,), [1])]


@pytest.mark.parametrize(
    "asks",
    [
        lambda ctx, time: ctx.notify_at((time[0] + 1,)),
        lambda ctx, time: ctx.retain((time[0] + 1,)).drop(),
        lambda ctx, time: ctx.start(lambda: None, (time[0] + 1,)),
        lambda ctx, time: ctx.retain().delayed((time[0] + 1,)),
        lambda ctx, time: ctx.retain().downgrade((time[0] + 1,)),
    ],
)
def test_nothing_can_wait_for_later_than_the_end(asks: Callable[[Context, Time], Any]) -> None:
    at_the_end(lambda ctx, time, batch: asks(ctx, time) if time[0] < END and time[0] > 5 else None)
    with pytest.raises(OperatorError, match=r"'under test' .* later than \(END,\): nothing comes after END"):
        at_the_end(lambda ctx, time, batch: asks(ctx, time) if time[0] == END else None)


@pytest.mark.parametrize(
    "ask",
    [
        lambda ctx: ctx.notify_at((END,)),
        lambda ctx: ctx.retain((END,)).drop(),
        lambda ctx: ctx.retain().delayed((END,)).drop(),
        lambda ctx: ctx.send_at((END,), [1]),
        lambda ctx: ctx.start(lambda: None, (END,)),
    ],
)
def test_end_is_a_plain_number_for_the_engine(ask: Callable[[Context], Any]) -> None:
    """No message, and no checkpoint, carries the word that users write."""
    heard: list[Time] = []

    class Listening:
        def request(self, op: int, event: Time, time: Time, again: bool = False) -> None:
            heard.append(time)

        def hold(self, op: int, time: Time, diff: int, own: bool = False) -> None:
            heard.append(time)

        def start(self, op: int, time: Time, job: Any, context: bool, own: bool = False) -> None:
            heard.append(time)

    def asked(ctx: Context, time: Time, batch: Batch) -> None:
        engine, ctx.engine = ctx.engine, Listening()  # type: ignore[assignment]
        try:
            ask(ctx)
            heard.extend(time for _, time, _ in ctx.out)
        finally:
            ctx.engine = engine
            ctx.pending.clear()
            ctx.out.clear()

    flow, _ = program(asked)
    with Session(flow) as session:
        session.input("in").send([1])
        session.step()
    assert heard
    assert {type(at) for time in heard for at in time} == {int}
