"""The promise of each output: by a table of all cases, by rules that hold in every program, and whom it blames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import FileSink, SqliteSink
from recovery.guarantees.classes import OperatorClass
from recovery.guarantees.promises import Alike, Grade, Promise, as_plain, promises
from recovery.policy import AtLeastOnce, Batch, Eager, Ephemeral, Lazy, LogHistory, Snapshot
from timely.io import Callback, Console, Iterable, Memory
from timely.operators.base import Operator
from timely.state import KeyedState


class Recut:
    """A source that may end its epochs elsewhere when it is read again."""

    rereadable = True

    def partitions(self, worker: int, workers: int) -> list[Any]:
        """None."""
        return []


class Lossy(Recut):
    """A source that cannot be read again."""

    rereadable = False


SOURCES: dict[str, Callable[[], Any]] = {
    "lossy": Lossy,
    "sensor": lambda: Iterable([1]),
    "recut": Recut,
    "steady": lambda: Iterable([1]),
}
"""From the weakest on. A sensor is declared: it gives something else when it is read again, whatever its class says."""


def read(flow: Dataflow, name: str, source: str) -> Stream:
    """The stream of one of the sources."""
    stream = flow.source(name, SOURCES[source]())
    return stream.nondeterministic("it reads a sensor") if source == "sensor" else stream


class ByTime(Operator):
    """One of the user's that gives the same in whatever batches the records of a time come."""

    repeats_over = "time"


OPERATORS: dict[str, Callable[[Stream], Stream]] = {
    "jobs": lambda stream: stream.unary("op", Operator, holds=True, stateful=False),
    "dice": lambda stream: stream.unary("op", Operator).nondeterministic("it rolls dice"),
    "undeclared": lambda stream: stream.unary("op", Operator),
    "custom": lambda stream: stream.unary("op", ByTime),
    "total": lambda stream: stream.keyed().count(name="op").records(),
    "map": lambda stream: stream.map(str, name="op"),
}
CLASSES = {"jobs": 0, "dice": 0, "undeclared": 0, "custom": 1, "total": 2, "map": 3}

SINKS: dict[str, Callable[[Stream], object]] = {
    "memory": lambda stream: stream.to(Memory(), name="out"),
    "capture": lambda stream: stream.capture("out"),
    "told": lambda stream: stream.to(Callback(print), name="out"),
    "exactly": lambda stream: stream.to(FileSink("folder"), name="out"),
}


@pytest.mark.parametrize("mixed", [lambda n: n.records().exchange(by=str), lambda n: n.concat(n.map_values(str))])
def test_what_parts_the_totals_of_a_key_is_to_blame(mixed: Callable[[Any], Any]) -> None:
    flow = Dataflow()
    totals = flow.source("in", Recut()).key_by(str).count()
    mixed(totals).to(Callback(print), name="out")
    (promise,) = promises(flow.graph)
    assert promise.any == Grade.DIVERGENT
    assert promise.causes[0].kind in ("exchange", "sink")
    assert "the last of a key" in promise.causes[0].reason


def made(source: str, operator: str, policy: object, sink: str) -> Promise:
    flow = Dataflow()
    if isinstance(policy, Eager | AtLeastOnce):
        with flow.region("region", policy=policy):
            stream = OPERATORS[operator](read(flow, "in", source))
    else:
        stream = OPERATORS[operator](read(flow, "in", source)).policy(policy)
    SINKS[sink](stream)
    (promise,) = promises(flow.graph)
    return promise


TABLE = """
source  operator  policy    exactly    told        alike
lossy   any       any       gap        gap         not
sensor  any       again     divergent  divergent   not
sensor  dice      replays   divergent  divergent   not
sensor  any       others    precise    divergent   not
sensor  any       firm      precise    repeating   not
recut   map       again     repeating  repeating   records
recut   total     again     divergent  divergent   latest
steady  map       again     repeating  repeating   epochs
steady  total     again     divergent  divergent   epochs
steady  custom    again     divergent  divergent   epochs
any     any       again     divergent  divergent   not
recut   map       others    precise    convergent  records
recut   map       firm      precise    repeating   records
recut   total     others    precise    convergent  latest
recut   total     firm      precise    repeating   latest
recut   custom    others    precise    divergent   not
recut   custom    firm      precise    repeating   not
recut   jobs      others    precise    divergent   not
recut   jobs      firm      precise    repeating   not
recut   dice      replays   divergent  divergent   not
recut   dice      others    precise    divergent   not
recut   dice      firm      precise    repeating   not
steady  dice      replays   divergent  divergent   not
steady  dice      others    precise    divergent   not
steady  dice      firm      precise    repeating   not
recut   undeclared others   precise    divergent   not
recut   undeclared firm     precise    repeating   not
steady  undeclared others   precise    divergent   not
steady  undeclared firm     precise    repeating   not
steady  jobs      others    precise    divergent   not
steady  jobs      firm      precise    repeating   not
steady  any       any       precise    repeating   epochs
"""
"""The first line that fits holds. `replays` is LogHistory, `firm` Eager, `again` AtLeastOnce; `others` are all but firm."""


def expected(source: str, operator: str, policy: object, sink: str) -> tuple[str, str, str]:
    """The promises of the table: against one failure, against any number, and how far two runs are alike."""
    fits = {"firm": isinstance(policy, Eager), "others": not isinstance(policy, Eager), "any": True}
    fits["replays"], fits["again"] = isinstance(policy, LogHistory), isinstance(policy, AtLeastOnce)
    for line in TABLE.strip().splitlines()[1:]:
        its_source, its_operator, its_policy, exactly, told, alike = line.split()
        if its_source in (source, "any") and its_operator in (operator, "any") and fits[its_policy]:
            break
    one = {"exactly": exactly, "told": told, "capture": exactly, "memory": "gap"}[sink]
    return one, "gap" if sink == "capture" else one, alike


EVERY = list(
    product(SOURCES, OPERATORS, (Ephemeral(), Batch(), Lazy(), LogHistory(), Eager(), Snapshot(), AtLeastOnce()), SINKS)
)


def test_every_case_is_as_in_the_table() -> None:
    for case in EVERY:
        found = made(*case)
        assert (str(found.one), str(found.any), found.alike.name.lower()) == expected(*case), case


def test_table_has_every_grade_and_the_operators_every_class() -> None:
    assert {made(*case).any for case in EVERY} == set(Grade)
    assert {made(*case).alike for case in EVERY} == set(Alike)
    assert set(CLASSES.values()) == set(OperatorClass)


def test_policy_that_says_nothing_is_promised_least() -> None:
    for case in product(SOURCES, OPERATORS, SINKS):
        source, operator, sink = case
        unknown = made(source, operator, object(), sink)
        known = [made(source, operator, policy, sink) for policy in (Lazy(), LogHistory(), Eager())]
        assert unknown.any <= min(promise.any for promise in known)


# Causes


def test_whatever_is_not_precise_has_a_cause_of_that_grade_first() -> None:
    for case in EVERY:
        found = made(*case)
        assert found.one >= found.any, case
        assert [cause.grade for cause in found.causes] == sorted(cause.grade for cause in found.causes), case
        assert min((cause.grade for cause in found.causes), default=Grade.PRECISE) == found.any, case
        for cause in found.causes:
            assert cause.name in ("in", "op", "out"), case
            assert cause.site.startswith(__file__), case
            assert cause.reason, case
            assert cause.mend, case


MENDS: list[tuple[str, dict[str, str]]] = [
    ("write to a sink that is exactly once", {"told": "exactly", "memory": "exactly", "capture": "exactly"}),
    ("put a file or a queue in between", {"lossy": "steady"}),
    ("end epochs by what is in the data", {"recut": "steady"}),
    ("give it Lazy()", {"LogHistory": "Lazy"}),
    ("declare repeats_over", {"undeclared": "custom"}),
    ("give it Ephemeral()", {"AtLeastOnce": "Lazy"}),
    ("give 'in' Ephemeral()", {"AtLeastOnce": "Lazy"}),
]


def test_doing_what_would_mend_it_mends_it() -> None:
    """Step by step, each time what the weightiest cause asks for: until the output is precise."""
    for source, operator, policy, sink in EVERY:
        found = made(source, operator, policy, sink)
        for _ in range(4):
            if not found.causes:
                break
            before = found
            changes = next(changes for text, changes in MENDS if found.causes[0].mend.startswith(text))
            source, sink = changes.get(source, source), changes.get(sink, sink)
            operator = changes.get(operator, operator)
            policy = Lazy() if type(policy).__name__ in changes else policy
            found = made(source, operator, policy, sink)
            assert found.any >= before.any, (source, operator, policy, sink)
            assert before.causes[0] not in found.causes, (source, operator, policy, sink)
        assert found.any == Grade.PRECISE, (source, operator, policy, sink)


def test_declared_reason_and_line_of_the_operator_are_named() -> None:
    flow = Dataflow()
    asked = flow.source("in", Iterable([1])).map(str, name="ask").nondeterministic("it asks the weather service")
    asked.filter(bool).to(Console(), name="out")
    (promise,) = promises(flow.graph)
    assert [(cause.grade, cause.kind, cause.name) for cause in promise.causes] == [
        (Grade.DIVERGENT, "map", "ask"),
        (Grade.REPEATING, "sink", "out"),
    ]
    assert "it asks the weather service" in promise.causes[0].reason
    assert promise.causes[0].site == str(flow.graph.node_named("ask").site)


def test_operator_that_goes_by_epochs_is_blamed_and_names_the_source() -> None:
    flow = Dataflow()
    keyed = flow.source("ticks", Recut()).key_by(str)
    keyed.count(over="time", name="each").records().to(Callback(print), name="out")
    (promise,) = promises(flow.graph)
    assert promise.causes[0].name == "each"
    assert "source 'ticks'" in promise.causes[0].reason


def test_replay_of_state_counts_whatever_is_said_of_it() -> None:
    class Keeps(Operator):
        def __init__(self) -> None:
            self.state = KeyedState()

    def of(factory: type[Operator]) -> Grade:
        flow = Dataflow()
        dice = flow.source("in", Iterable([1])).unary("dice", factory, stateful=False).policy(LogHistory())
        dice.nondeterministic("it rolls dice").to(FileSink("folder"))
        return promises(flow.graph)[0].any

    assert of(Operator) == Grade.PRECISE
    assert of(Keeps) == Grade.DIVERGENT


def test_region_that_is_declared_counts_for_all_that_is_in_it() -> None:
    flow = Dataflow()
    with flow.region("asking", nondeterministic="order matters"):
        stream = flow.source("in", Iterable([1])).map(str)
    stream.to(Callback(print), name="out")
    assert promises(flow.graph)[0].any == Grade.DIVERGENT


def test_totals_that_are_not_passed_on_by_key_have_no_last_word() -> None:
    def of(verb: Callable[[Any], Any]) -> Alike:
        flow = Dataflow()
        verb(flow.source("in", Recut()).key_by(str).count()).capture()
        return promises(flow.graph)[0].alike

    assert of(lambda totals: totals) == Alike.LATEST
    assert of(lambda totals: totals.map_values(str)) == Alike.LATEST
    assert of(lambda totals: totals.exchange()) == Alike.LATEST
    assert of(lambda totals: totals.records().exchange(by=str)) == Alike.NOT
    assert of(lambda totals: totals.records().broadcast()) == Alike.NOT
    assert of(lambda totals: totals.concat(totals.map_values(str))) == Alike.NOT
    assert of(lambda totals: totals.records().filter(lambda pair: pair[1] < 3)) == Alike.NOT
    assert of(lambda totals: totals.records().map(str)) == Alike.NOT
    assert of(lambda totals: totals.values()) == Alike.NOT
    assert of(lambda totals: totals.sum()) == Alike.NOT


def test_totals_of_columns_that_are_passed_on_by_other_columns_have_no_last_word() -> None:
    def of(verb: Callable[[Any], Any]) -> Alike:
        flow = Dataflow()
        verb(flow.columns("in", Recut()).group_by("key").agg(n=agg.count(), over="scope")).capture()
        return promises(flow.graph)[0].alike

    assert of(lambda totals: totals) == Alike.LATEST
    assert of(lambda totals: totals.exchange("n")) == Alike.NOT
    assert of(lambda totals: totals.group_by("n").agg(m=agg.count(), over="scope")) == Alike.NOT


def test_unsteady_operator_in_a_loop_reaches_all_that_leaves_the_loop() -> None:
    flow = Dataflow()

    def body(inner: Stream) -> tuple[Stream, Stream]:
        return inner.map(str, name="dice").nondeterministic("dice"), inner.filter(bool, name="out of the loop")

    flow.source("in", Iterable([1])).iterate(body).to(Callback(print), name="out")
    (promise,) = promises(flow.graph)
    assert (promise.any, promise.causes[0].name) == (Grade.DIVERGENT, "dice")


def test_what_is_beside_an_output_does_not_count(tmp_path: Path) -> None:
    flow = Dataflow()
    steady = flow.source("steady", Iterable([1]))
    flow.source("lossy", Lossy()).concat(steady).to(SqliteSink(tmp_path / "a.db", "t"), name="first")
    steady.to(SqliteSink(tmp_path / "b.db", "t"), name="second")
    assert [(each.output, each.any) for each in promises(flow.graph)] == [
        ("first", Grade.GAP),
        ("second", Grade.PRECISE),
    ]


def test_what_comes_twice_is_counted_twice_by_all_that_does_not_handle_single_records() -> None:
    def of(verb: Callable[[Stream], Stream]) -> tuple[Grade, Alike, str]:
        flow = Dataflow()
        steady = flow.source("steady", Iterable([1]))
        with flow.region("front", policy=AtLeastOnce()):
            stream = flow.source("in", Iterable([1])).map(str, name="op")
        verb(stream.concat(steady)).to(FileSink("folder"), name="out")
        (promise,) = promises(flow.graph)
        return promise.any, promise.again, promise.causes[0].name

    assert of(lambda stream: stream.exchange(by=str)) == (Grade.REPEATING, Alike.RECORDS, "in")
    assert of(lambda stream: stream.distinct()) == (Grade.REPEATING, Alike.RECORDS, "in")
    assert of(lambda s: s.keyed().count(name="n").records()) == (Grade.DIVERGENT, Alike.LATEST, "n")
    assert of(lambda s: s.keyed().count(over="time", name="n").records()) == (Grade.DIVERGENT, Alike.NOT, "n")
    assert of(lambda s: s.distinct().keyed().count(name="n").records()) == (Grade.CONVERGENT, Alike.LATEST, "n")
    assert of(lambda s: s.distinct(over="time", name="n").keyed().count().records())[0] == Grade.DIVERGENT
    assert of(lambda s: s.unary("n", Operator).distinct()) == (Grade.DIVERGENT, Alike.NOT, "n")
    assert of(lambda s: s.unary("n", Operator).unary("m", Operator)) == (Grade.DIVERGENT, Alike.NOT, "n")
    assert of(lambda s: s.distinct().unary("n", Operator)) == (Grade.DIVERGENT, Alike.NOT, "n")


def test_what_cannot_be_read_again_does_not_come_twice() -> None:
    promise = made("lossy", "map", AtLeastOnce(), "exactly")
    assert [(cause.grade, cause.name) for cause in promise.causes] == [(Grade.GAP, "in")]
    for sink in SINKS:
        found, other = (made("lossy", "map", policy, sink) for policy in (AtLeastOnce(), Ephemeral()))
        assert (found.one, found.any, found.again) == (other.one, other.any, other.again)
        assert len(found.causes) == len(other.causes)
    assert [cause.grade for cause in made("sensor", "map", AtLeastOnce(), "exactly").causes] == [Grade.DIVERGENT]


def test_what_comes_twice_is_blamed_for_being_counted_twice_or_for_coming_later() -> None:
    def reason(verb: Callable[[Stream], Stream]) -> str:
        flow = Dataflow()
        with flow.region("front", policy=AtLeastOnce()):
            stream = flow.source("in", Iterable([1])).map(str)
        verb(stream).to(FileSink("folder"), name="out")
        return promises(flow.graph)[0].causes[0].reason

    assert "counts twice" in reason(lambda s: s.unary("n", Operator))
    assert "it goes by epochs" in reason(lambda s: s.distinct().unary("n", Operator))
    assert "other totals until then" in reason(lambda s: s.distinct().keyed().count(name="n").records())


def test_eager_region_is_firm_as_long_as_nothing_else_leads_into_it() -> None:
    def of(front: object, second: object) -> Grade:
        flow = Dataflow()
        with flow.region("front", policy=front):
            stream = flow.source("in", Recut()).key_by(str).count(over="time").records()
        with flow.region("second", policy=second):
            stream = stream.map(str).nondeterministic("dice")
        stream.to(Callback(print), name="out")
        return promises(flow.graph)[0].any

    assert of(Eager(), Eager()) == Grade.REPEATING
    assert of(Lazy(), Eager()) == Grade.DIVERGENT  # those in front go back, and the region with them
    assert of(Eager(), Lazy()) == Grade.DIVERGENT  # the dice are behind the gate


def test_the_order_in_which_streams_come_together_does_not_matter() -> None:
    def of(first: Callable[[Dataflow], Stream], second: Callable[[Dataflow], Stream]) -> Any:
        flow = Dataflow()
        with flow.region("both", policy=Eager()):
            stream = first(flow).concat(second(flow)).map(str)
        stream.to(Callback(print), name="out")
        (promise,) = promises(flow.graph)
        return promise.any, promise.alike, promise.again, [(each.grade, each.name) for each in promise.causes]

    streams: list[Callable[[Dataflow], Stream]] = [
        lambda flow: flow.source("steady", Iterable([1])),
        lambda flow: flow.source("recut", Recut()),
        lambda flow: flow.source("lossy", Lossy()),
        lambda flow: flow.source("other", Iterable([1])).map(str, name="dice").nondeterministic("dice"),
    ]
    for first, second in product(streams, repeat=2):
        if first is not second:
            assert of(first, second) == of(second, first)


def test_a_stream_from_a_region_that_is_not_firm_makes_those_that_it_meets_unsteady() -> None:
    def of(*policies: object) -> Grade:
        flow = Dataflow()
        streams = []
        for number, policy in enumerate(policies):
            with flow.region(f"source {number}", policy=policy):
                streams.append(flow.source(f"in-{number}", Recut()))
        with flow.region("both", policy=Eager()):
            stream = streams[0].concat(*streams[1:]).map(str)
        stream.to(Callback(print), name="out")
        return promises(flow.graph)[0].any

    assert of(Eager(), Eager()) == Grade.REPEATING
    assert of(Lazy(), Eager()) == of(Eager(), Lazy()) == Grade.CONVERGENT


def test_an_operator_without_a_policy_is_saved_as_under_lazy() -> None:
    flow = Dataflow()
    flow.source("in", Iterable([1])).unary("op", Operator).nondeterministic("dice").to(FileSink("folder"))
    assert promises(flow.graph)[0].any == Grade.PRECISE


def test_what_a_source_or_a_sink_does_not_say() -> None:
    """A source can be read again, and a sink is told at least once."""

    class Plain:
        def partitions(self, worker: int, workers: int) -> list[Any]:
            return []

    class Told:
        def open(self, worker: int, workers: int) -> None:
            """Nothing."""

    flow = Dataflow()
    source: Any = Plain()
    sink: Any = Told()
    flow.source("in", source).to(sink, name="out")
    assert promises(flow.graph)[0].any == Grade.CONVERGENT


def test_a_promise_as_plain_values_has_names_for_its_grades() -> None:
    plain = as_plain(made("steady", "total", AtLeastOnce(), "exactly"))
    assert {name: plain[name] for name in ("output", "one", "any", "alike", "again")} == {
        "output": "out",
        "one": "divergent",
        "any": "divergent",
        "alike": "epochs",
        "again": "latest",
    }


# In every program


@dataclass(frozen=True)
class Step:
    """One operator of a random program: what it does, its policy, and which earlier streams it reads."""

    operator: str
    policy: str
    reads: tuple[int, ...]


POLICY: dict[str, Callable[[], object]] = {"replays": LogHistory, "lazy": Lazy, "firm": Eager}
"""From the weakest on."""


@dataclass(frozen=True)
class Shape:
    """A random program without loops: sources, steps, and an output of each kind at some streams."""

    sources: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    outputs: tuple[tuple[str, int], ...]

    def promises(self) -> tuple[Promise, ...]:
        flow = Dataflow()
        streams = []
        for number, (source, policy) in enumerate(self.sources):
            with flow.region(f"source {number}", policy=POLICY[policy]()):
                streams.append(read(flow, f"in-{number}", source))
        for number, step in enumerate(self.steps):
            first, *others = (streams[at % len(streams)] for at in step.reads)
            stream = first.concat(*others) if others else first
            with flow.region(f"step {number}", policy=POLICY[step.policy]()):
                if step.operator in ("custom", "dice"):
                    stream = stream.unary(f"op-{number}", Operator)
                    stream = stream.nondeterministic("dice") if step.operator == "dice" else stream
                else:
                    stream = stream.map(str, name=f"op-{number}") if step.operator == "map" else _total(stream, number)
            streams.append(stream)
        for kind, at in self.outputs:
            stream = streams[at % len(streams)]
            if kind == "capture":
                stream.capture()
            else:
                stream.to({"memory": Memory, "told": Console}.get(kind, lambda: FileSink("folder"))())
        return promises(flow.graph)


def _total(stream: Stream, number: int) -> Stream:
    return stream.key_by(str).count(name=f"op-{number}").records()


WEAKER = {
    "source": list(SOURCES),
    "operator": ["dice", "custom", "total", "map"],
    "policy": list(POLICY),
    "sink": list(SINKS),
}

shapes = st.builds(
    Shape,
    st.lists(st.tuples(st.sampled_from(list(SOURCES)), st.sampled_from(list(POLICY))), min_size=1, max_size=3).map(
        tuple
    ),
    st.lists(
        st.builds(
            Step,
            st.sampled_from(WEAKER["operator"]),
            st.sampled_from(WEAKER["policy"]),
            st.lists(st.integers(0, 8), min_size=1, max_size=3, unique=True).map(tuple),
        ),
        max_size=6,
    ).map(tuple),
    st.lists(st.tuples(st.sampled_from(WEAKER["sink"]), st.integers(0, 8)), min_size=1, max_size=3).map(tuple),
)


def stronger(what: str, choice: str) -> Sequence[str]:
    """The choices that promise as much or more. Sinks: a capture and a memory are not comparable with one that is told."""
    if what == "sink":
        return [choice, "exactly"] if choice != "memory" else [choice, "capture", "exactly"]
    return WEAKER[what][WEAKER[what].index(choice) :]


@given(shapes, st.data())
def test_stronger_part_never_weakens_a_promise(shape: Shape, data: st.DataObject) -> None:
    what = data.draw(st.sampled_from(["source", "sink", *(["operator", "policy"] if shape.steps else [])]))
    parts: list[Any] = list({"source": shape.sources, "sink": shape.outputs}.get(what, shape.steps))
    at = data.draw(st.integers(0, len(parts) - 1))
    if what == "source":
        source, policy = parts[at]
        better_source, better_policy = stronger("source", source), stronger("policy", policy)
        parts[at] = data.draw(st.sampled_from(better_source)), data.draw(st.sampled_from(better_policy))
        better = replace(shape, sources=tuple(parts))
    elif what == "sink":
        parts[at] = data.draw(st.sampled_from(stronger(what, parts[at][0]))), parts[at][1]
        better = replace(shape, outputs=tuple(parts))
    else:
        parts[at] = replace(parts[at], **{what: data.draw(st.sampled_from(stronger(what, getattr(parts[at], what))))})
        better = replace(shape, steps=tuple(parts))
    for before, after in zip(shape.promises(), better.promises(), strict=True):
        assert after.one >= before.one
        assert after.any >= before.any


@given(shapes, st.integers(0, 5), st.integers(0, 8))
def test_one_more_input_never_strengthens_a_promise(shape: Shape, at: int, read: int) -> None:
    if not shape.steps:
        return
    steps = list(shape.steps)
    step = steps[at % len(steps)]
    position = len(shape.sources) + at % len(steps)
    added = read % position  # an earlier stream
    reads = tuple(dict.fromkeys((*(each % position for each in step.reads), added)))
    steps[at % len(steps)] = replace(step, reads=tuple(each % position for each in step.reads))
    same = replace(shape, steps=tuple(steps))
    steps[at % len(steps)] = replace(step, reads=reads)
    for before, after in zip(same.promises(), replace(shape, steps=tuple(steps)).promises(), strict=True):
        assert after.one <= before.one
        assert after.any <= before.any
        assert after.alike <= before.alike
