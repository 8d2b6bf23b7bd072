"""Groups with many values: a change costs what it changes, and comes to what all values come to, at any times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk
from libraries import differential
from libraries.differential import Collection, trace
from libraries.differential.trace import Trace
from tests.libraries.differential.histories import PATHS, handled
from tests.libraries.differential.test_times import in_scope
from timely.time import Frontier, Time, leq

some = settings(max_examples=settings.default.max_examples // 3)

VERBS: dict[str, tuple[Callable[[Collection], Collection], Callable[[list[Any]], list[Any]]]] = {
    "count": (lambda c: c.count(), lambda group: [len(group)]),
    "sum": (lambda c: c.sum(), lambda group: [_total(group)]),
    "min": (lambda c: c.min(), lambda group: [min(group)]),
    "max": (lambda c: c.max(), lambda group: [max(group)]),
    "top": (lambda c: c.top(3), lambda group: sorted(group)[-3:]),
    "bottom": (lambda c: c.top(2, greatest=False), lambda group: sorted(group)[:2]),
    "max of what is arranged": (lambda c: c.arrange().max(), lambda group: [max(group)]),
    "count of what is arranged": (lambda c: c.arrange().count(), lambda group: [len(group)]),
}


def _total(group: list[Any]) -> Any:
    whole = sum(map(Fraction, group))
    return float(whole) if float in map(type, group) else int(whole)


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[Time, Any, int]]:
    """Insertions at times of one depth, and removals at the same time or later."""
    depth = draw(st.integers(1, 3))
    coordinate = st.integers(0, 2)
    kind = draw(
        st.sampled_from([st.integers(-9, 9), st.integers(2**62, 2**63 - 1), st.sampled_from([0.1, 1e17, 3, -2.5])])
    )
    made: list[tuple[Time, Any, int]] = []
    for _ in range(draw(st.integers(1, 12))):
        time = tuple(draw(st.lists(coordinate, min_size=depth, max_size=depth)))
        record = (draw(st.sampled_from("kl")), draw(kind))
        made.append((time, record, 1))
        if draw(st.booleans()):
            made.append((tuple(at + draw(st.integers(0, 1)) for at in time), record, -1))
    return made


@pytest.mark.parametrize("verb", VERBS)
@some
@given(made=changes(), path=st.sampled_from(PATHS), order=st.randoms(use_true_random=False))
def test_at_each_time_a_group_is_what_it_is_from_scratch(
    verb: str, made: list[tuple[Time, Any, int]], path: int, order: Any
) -> None:
    build, oracle = VERBS[verb]
    order.shuffle(made)
    with handled(path), pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "WIDE", 2)
        found = in_scope(lambda a, b: build(a).concat(b), [("a", time, [(record, by)]) for time, record, by in made])
    for at in product(range(4), repeat=len(made[0][0])):
        held: Counter[Any] = Counter()
        for time, record, by in made:
            held[record] += by if leq(time, at) else 0
        groups: dict[Any, list[Any]] = {}
        for (key, value), times in held.items():
            groups.setdefault(key, []).extend([value] * times)
        want = Counter((key, value) for key, group in groups.items() if group for value in oracle(group))
        got: Counter[Any] = Counter()
        for time, records in found.items():
            got.update(records if leq(time, at) else {})
        assert {record: times for record, times in got.items() if times} == want, at


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("verb", ["count", "sum", "min", "max", "top", "count of what is arranged"])
def test_a_change_reads_few_of_the_values_of_its_key(verb: str, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as come, and about as many more for each run: of 20,000 values the least and the greatest one are taken away."""
    read = 0
    of, ranked, history = trace._Sorted.of, trace._Sorted.ranked, Trace.history

    def counted_of(run: Any, key: int) -> Any:
        nonlocal read
        found = of(run, key)
        read += len(found)
        return found

    def counted_ranked(run: Any, *args: Any) -> Any:
        nonlocal read
        for each in ranked(run, *args):
            read += 1
            yield each

    def counted_history(run: Any, keys: Any) -> Any:
        nonlocal read
        found = history(run, keys)
        read += len(found.key)
        return found

    monkeypatch.setattr(trace._Sorted, "of", counted_of)
    monkeypatch.setattr(trace._Sorted, "ranked", counted_ranked)
    monkeypatch.setattr(Trace, "history", counted_history)
    build, oracle = VERBS[verb]
    flow = falkirk.Dataflow()
    found = build(differential.input_of(flow, "values"))
    out = found.capture("out")
    found.probe("done")
    count, batch = 20_000, 1 if few else 40
    with falkirk.Session(flow) as session:
        given_ = differential.Input(session, "values")
        given_.columns(np.zeros(count, np.int64), np.arange(count))
        given_.advance_to(1)
        session.step_until(lambda: session.probe("done").done(0))
        read = 0
        for epoch in range(1, 21):
            gone = np.arange((epoch - 1) * batch, epoch * batch)
            given_.columns(np.zeros(batch, np.int64), gone, -1)
            given_.columns(np.zeros(batch, np.int64), count - 1 - gone, -1)
            given_.advance_to(epoch + 1)
        given_.close()
        session.run()
        captured = session.captured(out)
    left = list(range(20 * batch, count - 20 * batch))
    assert differential.snapshot(captured) == Counter((0, value) for value in oracle(left))
    assert read < 20 * (200 + 20 * batch), read


steps = st.lists(
    st.tuples(
        st.sampled_from(["one", "gone", "gone", "many", "first", "first", "rank", "keep", "compact", "restore"]),
        st.integers(0, 30),
    ),
    min_size=10,
)


@some
@given(steps=steps, greatest=st.booleans(), path=st.sampled_from(PATHS))
def test_values_in_order_are_those_that_are_left(steps: list[tuple[str, int]], greatest: bool, path: int) -> None:
    with handled(path), pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "WIDE", 0)
        held, rows, epoch = Trace(), [], 0
        for step, number in steps:
            there = Counter()
            for value, _, diff in rows:
                there[value] += diff
            left = sorted((value for value, times in there.items() if times), reverse=greatest)
            if step == "one" or (step == "gone" and left):
                value, by = (number, 1) if step == "one" else (left[0], -there[left[0]])
                held.add_one(1, value, (epoch,), by)
                rows.append((value, epoch, by))
            elif step == "many":
                values = np.unique(np.array([number, number // 2, 30 - number], np.int64))
                held.add(np.ones(len(values), np.int64), values, (epoch,), np.ones(len(values), np.int64))
                rows += [(value, epoch, 1) for value in values.tolist()]
            elif step in ("first", "rank"):
                ranked = held.ranked(1, greatest)
                if ranked is not None and step == "first":
                    assert next(ranked, None) == ((left[0], there[left[0]]) if left else None)
                elif ranked is not None:
                    assert list(ranked) == [(value, there[value]) for value in left]
            elif step == "keep" and epoch:
                held.keep(Frontier.before([(epoch,)], 1))
                rows = [row for row in rows if row[1] < epoch]
            elif step == "compact":
                held.compact(Frontier.before([(epoch,)], 1))
                epoch += 1
            elif step == "restore":
                runs = held.snapshot(Frontier.before([(epoch + 1,)], 1), Frontier.empty(1))
                held = Trace()
                held.restore(runs)
