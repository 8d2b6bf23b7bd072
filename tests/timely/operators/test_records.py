"""The verbs over records, against plain Python: same records, same times, whatever the number of workers."""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import reduce
from itertools import accumulate, chain, product
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from runtime.session.session import Session
from tests.timely.feeding import feed_in_turn
from timely.data.routing import shard_of, stable_hash, worker_of_shard
from timely.dataflow.wire import Capture, Wire
from timely.errors import OperatorError
from timely.operators.base import Context, Operator
from timely.time import Time

Epochs = list[list[Any]]
numbers = st.lists(st.lists(st.integers(-9, 9), max_size=6), min_size=1, max_size=4)
pairs = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9)), max_size=6), min_size=1, max_size=4)
workers_ = st.sampled_from([1, 2, 3])


def run(
    build: Callable[[Stream], Wire | tuple[Wire, ...]], epochs: Epochs, workers: int = 1
) -> list[dict[Time, list[Any]]]:
    """The records at each time of every stream that `build` returns; epoch by epoch, records dealt to workers in turn."""
    flow = Dataflow()
    built = build(flow.input("in"))
    captures: list[Capture] = [s.capture() for s in (built if isinstance(built, tuple) else (built,))]
    cluster = Cluster(flow, workers, seed=len(epochs))
    feed_in_turn(cluster, epochs)
    results = []
    for capture in captures:
        at: dict[Time, list[Any]] = defaultdict(list)
        for time, batch in cluster.captured(capture):
            assert len(batch), "an empty batch travelled"
            at[time] += batch
        results.append(dict(at))
    return results


def same(found: dict[Time, list[Any]], expected: Epochs) -> None:
    """Equal as multisets, epoch by epoch."""
    assert {time: Counter(map(repr, records)) for time, records in found.items()} == {
        (epoch,): Counter(map(repr, records)) for epoch, records in enumerate(expected) if records
    }


def groups(records: list[Any]) -> dict[Any, list[Any]]:
    result = defaultdict(list)
    for key, value in records:
        result[key].append(value)
    return result


STATELESS: dict[str, tuple[Callable[[Stream], Wire], Callable[[list[int]], list[Any]]]] = {
    "map": (lambda s: s.map(lambda x: x * 2), lambda b: [x * 2 for x in b]),
    "filter": (lambda s: s.filter(lambda x: x > 2), lambda b: [x for x in b if x > 2]),
    "flat_map": (
        lambda s: s.flat_map(lambda x: range(x % 4)),
        lambda b: list(chain.from_iterable(range(x % 4) for x in b)),
    ),
    "flat_map of a generator": (
        lambda s: s.flat_map(lambda x: (x for _ in "ab")),
        lambda b: [x for x in b for _ in "ab"],
    ),
    "map_batches": (lambda s: s.map_batches(lambda b: [-x for x in b]), lambda b: [-x for x in b]),
    "map_batches to nothing": (lambda s: s.map_batches(lambda b: []).map(abs), lambda b: []),
    "key_by": (lambda s: s.key_by(lambda x: x % 3), lambda b: [(x % 3, x) for x in b]),
    "map_values": (lambda s: s.key_by(abs).map_values(str), lambda b: [(abs(x), str(x)) for x in b]),
    "values": (lambda s: s.key_by(abs).values().map(lambda x: x + 1), lambda b: [x + 1 for x in b]),
    "concat": (lambda s: s.map(abs).concat(s, s.filter(bool)), lambda b: [*map(abs, b), *b, *filter(bool, b)]),
    "exchange": (lambda s: s.exchange(abs), list),
    "exchange of pairs": (lambda s: s.key_by(abs).exchange().values(), list),
    "enter and leave": (lambda s: s.enter(s_scope(s)).map(abs).leave(), lambda b: [abs(x) for x in b]),
    "columns and back": (
        lambda s: s.map(lambda x: {"x": x}).to_columns().to_records().map(operator.itemgetter("x")),
        list,
    ),
    "columns with a schema": (
        lambda s: s.map(lambda x: (x, str(x))).to_columns({"x": pl.Int32, "t": pl.String}).to_records(),
        lambda b: [{"x": x, "t": str(x)} for x in b],
    ),
}


def s_scope(s: Stream) -> Any:
    return s.graph.add_scope("sub", s.scope)


@pytest.mark.parametrize("verb", STATELESS)
@given(numbers, workers_)
@settings(max_examples=12)
def test_stateless_verbs(verb: str, epochs: Epochs, workers: int) -> None:
    build, expected = STATELESS[verb]
    (found,) = run(build, epochs, workers)
    same(found, [expected(records) for records in epochs])


@given(numbers, workers_)
def test_branch_and_attempt_lose_nothing(epochs: Epochs, workers: int) -> None:
    yes, no = run(lambda s: s.branch(lambda x: x > 0), epochs, workers)
    same(yes, [[x for x in b if x > 0] for b in epochs])
    same(no, [[x for x in b if x <= 0] for b in epochs])
    results, dead = run(lambda s: s.attempt(lambda x: 12 // x), epochs, workers)
    same(results, [[12 // x for x in b if x] for b in epochs])
    text = "ZeroDivisionError: integer division or modulo by zero"
    same(dead, [[(x, text) for x in b if not x] for b in epochs])


def test_dead_letters_of_columns_are_rows_and_other_errors_still_stop_the_job() -> None:
    flow = Dataflow()
    good, dead = flow.input("in").attempt(lambda row: int(row["x"]))
    kept, letters = good.capture(), dead.capture()
    with Session(flow) as session:
        session.input("in").send(pl.DataFrame({"x": ["1", "two"]}))
        session.step()
        assert session.captured(kept) == [((0,), [1])]
        (((_), [(row, text)]),) = session.captured(letters)
        assert row == {"x": "two"}
        assert text.startswith("ValueError: invalid literal")
    flow = Dataflow()

    def interrupted(record: Any) -> None:
        raise KeyboardInterrupt

    flow.input("in").attempt(interrupted)
    with Session(flow) as session:
        session.input("in").send([1])
        with pytest.raises(KeyboardInterrupt):
            session.step()


@given(numbers, st.sampled_from([2, 3]))
def test_broadcast_reaches_every_worker_once(epochs: Epochs, workers: int) -> None:
    (found,) = run(lambda s: s.broadcast(), epochs, workers)
    same(found, [b * workers for b in epochs])


@given(st.lists(st.integers(), max_size=30), st.sampled_from([2, 3]))
def test_exchange_brings_a_key_to_the_worker_that_owns_its_shard(records: list[int], workers: int) -> None:
    flow = Dataflow()
    capture = flow.input("in").exchange(lambda x: x % 7).capture()
    cluster = Cluster(flow, workers, None)
    for session in cluster.sessions:
        session.input("in").send(records)
        session.input("in").close()
    cluster.run()
    for session in cluster.sessions:
        mine = [x for _, batch in session.captured(capture) for x in batch]
        owned = [x for x in records if worker_of_shard(shard_of(stable_hash(x % 7)), workers) == session.index]
        assert Counter(mine) == Counter(owned * workers)


KEYED: dict[str, tuple[Callable[..., Wire], Callable[[list[int]], Any]]] = {
    "count": (lambda s, over: s.keyed().count(over=over), len),
    "sum": (lambda s, over: s.keyed().sum(over=over), sum),
    "min": (lambda s, over: s.keyed().min(over=over), min),
    "max": (lambda s, over: s.keyed().max(over=over), max),
    "reduce": (
        lambda s, over: s.keyed().map_values(lambda v: (v,)).reduce(lambda a, b: tuple(sorted(a + b)), over=over),
        lambda values: tuple(sorted(values)),
    ),
    "fold": (
        lambda s, over: s.keyed().fold(lambda: 0, lambda a, v: a + v * v, over=over),
        lambda values: sum(v * v for v in values),
    ),
    "fold of a value": (
        lambda s, over: s.keyed().fold(100, lambda a, v: a + v, over=over),
        lambda values: 100 + sum(values),
    ),
}


@pytest.mark.parametrize("verb", KEYED)
@given(pairs, workers_)
@settings(max_examples=15)
def test_keyed_verbs_within_a_time_and_running(verb: str, epochs: Epochs, workers: int) -> None:
    build, total = KEYED[verb]
    (within,) = run(lambda s: build(s, "time"), epochs, workers)
    same(within, [[(key, total(values)) for key, values in groups(b).items()] for b in epochs])
    (running,) = run(lambda s: build(s, "scope"), epochs, workers)
    expected: Epochs = []
    for before, until in zip([[], *accumulate(epochs)], accumulate(epochs)):
        old, new = groups(before), groups(until)
        totals = {key: total(values) for key, values in new.items()}
        touched = {key for key, values in new.items() if len(values) > len(old[key])}
        expected.append([(key, totals[key]) for key in touched if not old[key] or totals[key] != total(old[key])])
    same(running, expected)


@given(numbers, workers_)
def test_distinct(epochs: Epochs, workers: int) -> None:
    (within,) = run(lambda s: s.distinct(over="time"), epochs, workers)
    same(within, [sorted(set(b)) for b in epochs])
    (running,) = run(lambda s: s.distinct(), epochs, workers)
    seen: list[set[int]] = [set(), *(set(b) for b in accumulate(epochs))]
    same(running, [sorted(set(b) - before) for b, before in zip(epochs, seen)])


def matched(left: list[Any], right: list[Any]) -> list[Any]:
    return [(k, (a, b)) for (k, a), (other, b) in product(left, right) if k == other]


@given(pairs, workers_)
def test_join(epochs: Epochs, workers: int) -> None:
    def build(over: Any) -> Callable[[Stream], Wire]:
        return lambda s: s.filter(lambda kv: kv[1] > 0).keyed().join(s.filter(lambda kv: kv[1] <= 1).keyed(), over=over)

    sides = [([kv for kv in b if kv[1] > 0], [kv for kv in b if kv[1] <= 1]) for b in epochs]
    (within,) = run(build("time"), epochs, workers)
    same(within, [matched(*both) for both in sides])
    (running,) = run(build("scope"), epochs, workers)
    totals = [Counter(matched(*both)) for both in accumulate(sides, lambda x, y: (x[0] + y[0], x[1] + y[1]))]
    before = [Counter[Any](), *totals]
    same(running, [list((now - then).elements()) for now, then in zip(totals, before)])


@given(numbers, st.integers(1, 5), workers_)
def test_iterate_runs_its_body_until_nothing_goes_round_or_the_limit(epochs: Epochs, limit: int, workers: int) -> None:
    def collatz(x: int) -> int:
        return x // 2 if x % 2 == 0 else 3 * x + 1

    def orbit(x: int) -> list[int]:
        steps = []
        while (x := collatz(x)) > 1:
            steps.append(x)
        return steps

    def loop(s: Stream, limit: int | None) -> Stream:
        return s.filter(lambda x: x > 0).iterate(lambda i: i.map(collatz).filter(lambda x: x > 1).exchange(abs), limit)

    (found,) = run(lambda s: loop(s, None), epochs, workers)
    same(found, [[y for x in b if x > 0 for y in orbit(x)] for b in epochs])
    (limited,) = run(lambda s: loop(s, limit), epochs, workers)
    same(limited, [[y for x in b if x > 0 for y in orbit(x)[:limit]] for b in epochs])


@given(numbers)
@settings(max_examples=20)
def test_state_in_a_loop_runs_over_the_iterations_of_one_epoch_only(epochs: Epochs) -> None:
    """Reachability along x -> x // 2: `distinct` in the loop forgets when the next epoch begins."""
    (found,) = run(lambda s: s.iterate(lambda i: (lambda d: (d.map(lambda x: int(x / 2)), d))(i.distinct())), epochs)

    def reach(b: list[int]) -> list[int]:
        seen: set[int] = set()
        for x in b:
            while x not in seen:
                seen.add(x)
                x = int(x / 2)
        return sorted(seen)

    same(found, [reach(b) for b in epochs])


def test_sub_batches_are_times_of_their_own() -> None:
    def build(s: Stream) -> tuple[Wire, ...]:
        inside = s.enter(s_scope(s), at=operator.itemgetter(0))
        return inside.keyed().sum(over="time"), inside.keyed().count(over="time").records().leave()

    inside, outside = run(build, [[(3, 1), (0, 2), (3, 5)], [(4, 9)]])
    assert inside == {(0, 0): [(0, 2)], (0, 3): [(3, 6)], (1, 4): [(4, 9)]}
    assert outside == {(0,): [(0, 1), (3, 2)], (1,): [(4, 1)]}


@pytest.mark.parametrize("coordinate", [-1, 1.5, None, "0"])
def test_a_sub_batch_must_be_a_natural_number(coordinate: Any) -> None:
    with pytest.raises(OperatorError, match=r"enter 'entering' .*test_records\.py"):
        run(lambda s: s.enter(s_scope(s), at=lambda x: coordinate, name="entering"), [[1]])


def test_inspect_looks_and_changes_nothing() -> None:
    seen: list[int] = []
    (found,) = run(lambda s: s.inspect(seen.append).filter(bool).inspect(lambda x: None), [[1, 0, 2]])
    assert seen == [1, 0, 2]
    assert found == {(0,): [1, 2]}


def test_verbs_over_records_see_rows_of_columns_as_dicts() -> None:
    frame = pl.DataFrame({"k": ["a", "b", "a"], "v": [1, 2, 3]})
    flow = Dataflow()
    stream = flow.input("in")
    rows = stream.filter(lambda row: row["v"] > 1).map(lambda row: row["v"]).capture()
    totals = stream.key_by(lambda row: row["k"]).map_values(lambda row: row["v"]).sum().capture()
    with Session(flow) as session:
        session.input("in").send(frame)
        session.input("in").send(frame.to_arrow())
        session.input("in").close()
        session.run()
        assert [x for _, batch in session.captured(rows) for x in batch] == [2, 3, 2, 3]
        assert sorted(session.captured(totals)[0][1]) == [("a", 8), ("b", 4)]


def test_batches_of_one_time_are_joined_before_an_exchange_input_handles_them() -> None:
    sizes: list[int] = []

    def watch(batch: list[int]) -> list[int]:
        sizes.append(len(batch))
        return batch

    flow = Dataflow()
    flow.input("in").exchange(lambda x: 0).map_batches(watch).capture()
    cluster = Cluster(flow, 2, None)
    owner = worker_of_shard(shard_of(stable_hash(0)), 2)
    other = cluster.sessions[1 - owner]
    for _ in range(5):
        other.input("in").send([1, 2])
        other.step()
    while cluster.in_flight[1 - owner, owner]:
        cluster._deliver((1 - owner, owner))
    cluster.sessions[owner].step()
    assert sizes == [10]


def test_records_keep_their_order_on_the_way_through_one_worker() -> None:
    flow = Dataflow()
    left, right = flow.input("in").flat_map(lambda x: [x, x + 1]).branch(lambda x: True)
    captures = left.map(lambda x: x).capture(), right.capture()
    with Session(flow) as session:
        for x in range(0, 100, 2):
            session.input("in").send([x])
            session.step()
        assert [x for _, batch in session.captured(captures[0]) for x in batch] == list(range(100))
        assert session.captured(captures[1]) == []


def test_what_one_sender_sends_arrives_in_the_order_in_which_it_was_sent() -> None:
    flow = Dataflow()
    capture = flow.input("in").exchange(lambda x: 0).capture()
    for seed in range(5):
        cluster = Cluster(flow, 3, seed)
        for x in range(60):
            cluster.sessions[x % 3].input("in").send([x])
            cluster.step()
        for session in cluster.sessions:
            session.input("in").close()
        cluster.run()
        arrived = [x for _, batch in cluster.captured(capture) for x in batch]
        assert len(arrived) == 60
        for sender in range(3):
            mine = [x for x in arrived if x % 3 == sender]
            assert mine == sorted(mine)


def test_several_outputs_of_a_custom_operator() -> None:
    class Deal(Operator):
        def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
            for record in batch:
                ctx.send([record], record % 3)

    def build(s: Stream) -> tuple[Wire, ...]:
        dealt = s.unary("deal", Deal, outputs=3, notifies=False, stateful=False)
        return dealt.output(0), dealt.output(1), dealt.output(2)

    for n, found in enumerate(run(build, [list(range(9))])):
        assert found == {(0,): [n, n + 3, n + 6]}


def test_two_inputs_of_a_custom_operator_are_told_apart() -> None:
    class Ports(Operator):
        def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
            ctx.send([(port, sum(batch))])

    (found,) = run(lambda s: s.binary(s.map(operator.neg), "ports", Ports, notifies=False), [[1, 2], [5]])
    same(found, [[(0, 3), (1, -3)], [(0, 5), (1, -5)]])


def test_reduce_takes_any_combine_that_is_associative_and_commutative() -> None:
    epochs: Epochs = [[("k", n) for n in (6, 10, 15)], [("k", 7)]]
    (found,) = run(lambda s: s.keyed().reduce(operator.xor), epochs, 3)
    assert found == {
        (0,): [("k", reduce(operator.xor, (6, 10, 15)))],
        (1,): [("k", reduce(operator.xor, (6, 10, 15, 7)))],
    }
