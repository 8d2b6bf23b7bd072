"""`Keyed.process`: state and timers of each key, against a plain loop, and mistakes in the functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk
from runtime.session.cluster import Cluster
from tests.timely.operators.processing import act, by_loop, fire
from timely.errors import CodecError, FalkirkError, GraphError
from timely.operators.process import KeyedProcess, Timers
from timely.time import INF, Frontier, Time

step = st.one_of(
    st.tuples(st.just("set"), st.integers(0, 4)),
    st.tuples(st.just("cancel"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["add", "grow"]), st.integers(1, 3)),
    st.sampled_from([("forget",), ("tell",)]),
)
pairs = st.tuples(st.sampled_from("abc"), st.lists(step, min_size=1, max_size=3).map(tuple))
epochs_ = st.lists(st.lists(pairs, max_size=6), min_size=1, max_size=6)


def given_to(
    epochs: list[list[Any]], workers: int, seed: int, build: Callable[[Any], Any]
) -> list[tuple[Time, list[Any]]]:
    """What comes out of what `build` makes of pairs that come in drawn batches, in a drawn order, in that of workers."""
    flow = falkirk.Dataflow()
    out = build(flow.input("in").keyed()).capture()
    cluster = Cluster(flow, workers, seed)
    random = Random(seed)
    for epoch, records in enumerate(epochs):
        left = random.sample(records, len(records))
        while left:
            some = random.randint(1, 3)
            random.choice(cluster.sessions).input("in").send(left[:some])
            del left[:some]
            if random.random() < 0.3:
                cluster.step()
        for session in cluster.sessions:
            session.input("in").advance_to(epoch + 1)
        if random.random() < 0.5:
            cluster.step()
    for session in cluster.sessions:
        session.input("in").close()
    cluster.run()
    return [(time, batch) for time, batch in cluster.captured(out)]


@given(epochs_, st.sampled_from([1, 2, 3]), st.integers(0, 999))
def test_it_does_what_a_plain_loop_does(epochs: list[list[Any]], workers: int, seed: int) -> None:
    def order(steps: Any) -> str:
        return repr(steps)

    found = given_to(epochs, workers, seed, lambda s: s.process(act, fire, order_by=order))
    expected = by_loop(epochs)
    if workers == 1:  # in order, and one batch for each epoch
        assert found == [((epoch,), told) for epoch, told in expected.items()]
    at: dict[int, list[Any]] = {}
    for (epoch,), batch in found:
        at.setdefault(epoch, []).extend(batch)
    assert {epoch: sorted(map(repr, told)) for epoch, told in at.items()} == {
        epoch: sorted(map(repr, told)) for epoch, told in expected.items()
    }


@given(st.lists(st.lists(pairs, min_size=1, max_size=4), min_size=2, max_size=6), st.data())
@settings(max_examples=60)
def test_it_goes_back_and_is_restored(epochs: list[list[Any]], data: st.DataObject) -> None:
    """Cut anywhere, a living operator that went back and a restored one go on as one to which nothing happened."""
    from tests.timely.operators.fake_context import FakeContext

    cut = data.draw(st.integers(0, len(epochs) - 1), "cut")
    ahead = data.draw(st.integers(cut, len(epochs) + 3), "ahead")
    settled = data.draw(st.booleans(), "compacted")

    def go(operator: KeyedProcess, ctx: Any, first: int, last: int) -> None:
        for epoch in range(first, last):
            ctx.time = (epoch,)
            for pair in epochs[epoch] if epoch < len(epochs) else ():
                operator.on_batch(ctx, 0, (epoch,), [pair])
            if (epoch,) in ctx.asked:
                operator.on_notify(ctx, (epoch,))

    def sent(ctx: Any, first: int) -> list[Any]:
        return [each for each in ctx.sent if each[0][0] >= first]

    living, restored, steady = (KeyedProcess(act, fire) for _ in range(3))
    contexts: list[Any] = [FakeContext() for _ in range(3)]
    end = len(epochs) + 40
    go(steady, contexts[2], 0, end)
    go(living, contexts[0], 0, cut)
    before, upto = Frontier.empty(1), Frontier.before([(cut,)])
    half = Frontier.before([(cut // 2,)])
    runs = [*living.state.snapshot(half, before), *living.state.snapshot(upto, half)]
    asked = set(contexts[0].asked)
    if settled:
        living.state.compact(upto)
    go(living, contexts[0], cut, ahead)
    living.state.keep(upto)
    contexts[0].asked, contexts[0].sent = set(asked), []
    restored.state.restore(runs)
    contexts[1].asked = set(asked)
    for operator, ctx in ((living, contexts[0]), (restored, contexts[1])):
        go(operator, ctx, cut, end)
        assert sent(ctx, cut) == sent(contexts[2], cut)


def test_what_is_saved_grows_with_what_changed() -> None:
    from tests.timely.operators.fake_context import FakeContext

    def look(key: Any, value: Any, timers: Timers) -> None:
        if value == "begin":
            timers.state = [0]
            timers.set(1000)
        elif value == "more":
            timers.state.append(1)
        else:
            assert timers.state[0] == 0

    operator, ctx = KeyedProcess(look, lambda key, epoch, timers: None), FakeContext()
    for epoch, batch in enumerate(
        [[(key, "begin") for key in range(100)], [(key, "look") for key in range(100)], [(7, "more"), (8, "look")]]
    ):
        ctx.time = (epoch,)
        operator.on_batch(ctx, 0, ctx.time, batch)  # type: ignore[arg-type]
        operator.on_notify(ctx, ctx.time)  # type: ignore[arg-type]
    cuts = [Frontier.empty(1), *(Frontier.before([(epoch + 1,)]) for epoch in range(3))]
    saved = [sum(len(run.batch) for run in operator.state.snapshot(upto, after)) for after, upto in pairwise(cuts)]
    assert saved == [100, 0, 1]


def test_in_a_loop_timers_count_iterations() -> None:
    def wait(key: Any, n: int, timers: Timers) -> None:
        timers.state = n
        timers.set(timers.epoch + 3)

    def go(key: Any, epoch: int, timers: Timers) -> Any:
        n, timers.state = timers.state, None
        yield key, n - 1

    flow = falkirk.Dataflow()
    start = flow.source("start", falkirk.Iterable([("a", 2), ("b", 1)]))
    start.iterate(
        lambda inner: (lambda s: (s.filter(lambda p: p[1] > 0), s.map(lambda p: (*p, "out"))))(
            inner.keyed().process(wait, go)
        )
    ).capture("out")
    out = sorted(record for _, batch in falkirk.run(flow).captured("out") for record in batch)
    assert out == [("a", 0, "out"), ("a", 1, "out"), ("b", 0, "out")]


def test_a_timer_for_the_end_fires_when_all_input_is_over() -> None:
    def wait(key: Any, n: int, timers: Timers) -> None:
        timers.state = (timers.state or 0) + n
        timers.set(falkirk.END)

    flow = falkirk.Dataflow()
    given = falkirk.Iterable([("a", 2), ("b", 1), ("a", 5)], epoch_every=1)
    totals = flow.source("start", given).keyed().process(wait, lambda key, epoch, timers: [(key, timers.state)])
    totals.capture("out")
    assert falkirk.run(flow).captured("out") == [((INF,), [("a", 7), ("b", 1)])]


def test_equal_keys_of_several_types_are_one_and_nan_is() -> None:
    nan = float("nan")

    def wait(key: Any, n: int, timers: Timers) -> None:
        timers.state = (timers.state or 0) + n
        timers.set(1)

    def tell(key: Any, epoch: int, timers: Timers) -> Any:
        yield repr(key), timers.state

    records = [(5, 1), (5.0, 2), (nan, 3), (float("nan"), 4)]
    for seed in range(4):
        assert given_to([records], 1, seed, lambda s: s.process(wait, tell)) == [((1,), [("5.0", 3), ("nan", 7)])]


# ----------------------------------------------------------------------------------------------------------
# Mistakes


def refused(function: Any, on_timer: Any = None, records: Any = (("a", 1),), workers: int = 1, **given: Any) -> str:
    flow = falkirk.Dataflow()
    made = (
        flow.source("in", falkirk.Iterable(list(records), epoch_every=1)).keyed().process(function, on_timer, **given)
    )
    made.capture()
    with pytest.raises(FalkirkError) as caught:
        Cluster(flow, workers, None).run()
    text = str(caught.value)
    assert re.search(r"process 'process-1' \(.*test_process\.py:\d+\)", text) or "exchange" in text
    return text


def fires(key: Any, epoch: int, timers: Timers) -> None:
    pass


@pytest.mark.parametrize(
    ("epoch", "text"),
    [
        (-1, "at epoch 1: that is over; timers are for 1 or later"),
        (0, "timers.set(0) at epoch 1: that is over"),
        (2.0, "takes an epoch, which is a whole number such as timers.epoch + 1, not 2.0 (float)"),
        ("2", "not '2' (str)"),
        (True, "not True (bool)"),
        (None, "not None (NoneType)"),
        (INF + 1, "nothing comes after END"),
    ],
)
def test_a_timer_is_for_the_present_epoch_or_a_later_one(epoch: Any, text: str) -> None:
    def sets(key: Any, value: Any, timers: Timers) -> None:
        if timers.epoch == 1:
            timers.set(epoch)

    found = refused(sets, fires, [("a", 1), ("b", 2)])
    assert text in found
    assert "failed at time (1,)" in found
    assert "the record: ('b', 2)" in found


def test_a_timer_that_fires_sets_none_for_its_own_epoch() -> None:
    def again(key: Any, epoch: int, timers: Timers) -> None:
        timers.set(epoch)

    text = refused(lambda key, value, timers: timers.set(timers.epoch + 3), again)
    assert "timers.set(3) while the timers of epoch 3 fire: set one for 4 or later" in text
    text = refused(lambda key, value, timers: timers.set(falkirk.END), lambda key, epoch, timers: timers.set(epoch))
    assert "all input is over (the epoch is END), and nothing comes after that" in text


def test_timers_need_a_function_to_call() -> None:
    assert "needs a function to call: give one" in refused(lambda key, value, timers: timers.set(3))


def test_what_is_cancelled_is_an_epoch_too() -> None:
    assert "timers.cancel() takes an epoch" in refused(lambda key, value, timers: timers.cancel("all"), fires)


@pytest.mark.parametrize("given", ["text", ("a", 1), {"a": 1}, 7, {1, 2}, b"x", True], ids=repr)
def test_a_result_that_is_no_list_of_records_is_an_error(given: Any) -> None:
    assert "return a list of records, such as [record], or yield them" in refused(lambda key, value, timers: given)


async def later(key: Any, value: Any, timers: Timers) -> None: ...


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_what_must_be_awaited_is_an_error() -> None:
    assert "coroutine" in refused(lambda *given: later(*given))
    for functions in ((later,), (fires, later)):
        flow = falkirk.Dataflow()
        with pytest.raises(GraphError, match=r"test_process\.py:\d+: process.* async def"):
            flow.source("in", falkirk.Iterable([])).keyed().process(*functions)


@pytest.mark.parametrize(
    ("functions", "text"),
    [
        (
            (lambda key, value: None,),
            r"process takes a function of \(key, value, timers\), and .*\(key, value\) does not fit",
        ),
        ((lambda: None,), "does not fit"),
        ((fires, lambda key: None), r"process\(on_timer=\) takes a function of \(key, epoch, timers\)"),
        ((3,), "process takes a function, not 3"),
        ((fires, "x"), r"process\(on_timer=\) takes a function, not 'x'"),
    ],
)
def test_functions_of_other_arguments_are_refused_where_they_are_given(functions: Any, text: str) -> None:
    flow = falkirk.Dataflow()
    with pytest.raises(GraphError, match=r"test_process\.py:\d+: .*" + text):
        flow.source("in", falkirk.Iterable([])).keyed().process(*functions)


def test_every_callable_that_takes_three_is_taken() -> None:
    class Calls:
        def __call__(self, key: Any, value: Any, timers: Timers) -> list[Any]:
            return [(key, value)]

        def method(self, key: Any, value: Any, timers: Timers, *more: Any) -> list[Any]:
            return [(key, value)]

    for each in (Calls(), Calls().method, lambda *all: [all[:2]], max):
        flow = falkirk.Dataflow()
        flow.source("in", falkirk.Iterable([])).keyed().process(each)


def test_a_key_that_cannot_be_hashed_and_a_record_that_is_no_pair_are_errors() -> None:
    assert "has no hash that is the same in every process" in refused(fires, records=[(["a"], 1)], workers=2)
    assert "has no hash" in refused(fires, records=[(["a"], 1)])
    assert "keyed verbs take pairs" in refused(fires, records=[1])


def test_an_error_in_a_timer_names_its_key_and_epoch() -> None:
    def fails(key: Any, epoch: int, timers: Timers) -> None:
        raise ValueError("no such order")

    text = refused(lambda key, value, timers: timers.set(4), fails)
    assert "failed at time (4,): ValueError: no such order" in text
    assert "the timer: ('a', 4)" in text


def test_state_that_nobody_can_save_is_named() -> None:
    def keeps(key: Any, value: Any, timers: Timers) -> None:
        timers.state = object()

    from falkirk.simulate.simulation import Simulation

    def build() -> falkirk.Dataflow:
        flow = falkirk.Dataflow()
        flow.source("in", falkirk.Iterable([("a", 1)])).keyed().process(keeps).policy(falkirk.Lazy(every=1)).capture()
        return flow

    with pytest.raises(CodecError, match=r"process 'process-1' .*values of type object are not carried"):
        assert Simulation(build, 1).run(0) is None
