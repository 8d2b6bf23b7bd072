"""The promise of each output, against what failures really do to it: never worse, and in some seed no better.

So the promises hold, and one of a grade more would be found out.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from random import Random
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace

from falkirk.simulate.judging import Publication
from falkirk.simulate.outside import Outside, Violation
from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from recovery.guarantees.promises import Alike, Grade, promises
from recovery.layout import lay_out
from recovery.policy import AtLeastOnce, Batch, Eager, Ephemeral, Lazy, LogHistory
from tests.falkirk.simulate.drawn_divisions import Dealt
from tests.falkirk.simulate.often import often
from tests.falkirk.simulate.programs import words
from tests.falkirk.simulate.test_unrepeatable_sources import Answers
from timely.dataflow.plan import compile_plan
from timely.io import Batches, Callback, Iterable, Memory, Rate
from timely.io.interface import Chunk, End, Partition, Position, Source, Wait
from timely.operators.base import Context, Operator
from timely.time import Time

SOAK = os.environ.get("FALKIRK_TEST_PROFILE") == "soak"
SEEDS = range(300 if SOAK else 40)
"""At most: but for soaking, a search ends when what was looked for is found."""


class Ticks:
    """Numbers that come one by one; an epoch is what comes in 40 ms. So read again, they are in other epochs."""

    rereadable = True

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock

    def with_clock(self, clock: Callable[[], float]) -> Ticks:
        """The same, by another clock."""
        return Ticks(clock)

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """Two of them."""
        return [_Ticking(f"ticks-{n}", n, self._clock) for n in range(2) if n % workers == worker]


class _Ticking:
    def __init__(self, name: str, number: int, clock: Callable[[], float]) -> None:
        self.name = name
        self._number = number
        self._clock = clock
        self._at = 0
        self._due = 0.0

    def read(self) -> Chunk | Wait | End:
        """The next number, when it is due."""
        now = self._clock()
        if now < self._due:
            return Wait(self._due - now)
        if self._at == 24:
            return End()
        self._at += 1
        self._due = now + 0.01
        return Chunk(int(now / 0.04), [2 * self._at + self._number], self._at)

    def seek(self, position: Position) -> None:
        """The next one comes in a while."""
        assert position is None or isinstance(position, int)
        self._at, self._due = position or 0, self._clock() + 0.01

    def ack(self, position: Position) -> None:
        """Nothing to let go."""

    def close(self) -> None:
        """Nothing to release."""


class Die(Operator):
    """Rolls a die once, and gives its number to all records."""

    def __init__(self) -> None:
        self._die: int | None = None

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        if self._die is None:
            self._die = DICE.randrange(1_000_000)
        ctx.send([(word, self._die) for word in batch])


DICE = Random(7)
TOSSED: dict[int, bool] = {}
"""By number, how the coin fell the last time."""
READINGS: dict[int, int] = {}
"""By number, what the sensor gave the last time."""


def told(stream: Stream) -> None:
    stream.to(Callback(print), name="out")


def exactly(stream: Stream) -> None:
    stream.to(Memory(), name="out")


def counted(sink: Callable[[Stream], None]) -> Dataflow:
    flow = Dataflow("counted")
    sink(words(flow).key_by(lambda word: word).count().records())
    return flow


def ticks(sink: Callable[[Stream], None], verb: Callable[[Stream], Stream]) -> Dataflow:
    flow = Dataflow("ticks")
    sink(verb(flow.source("in", Ticks()).exchange(by=lambda n: n)))
    return flow


def rows(stream: Stream) -> Stream:
    """Each number as it was, by way of verbs of columns that look at one row at a time."""
    columns = (
        stream.map(lambda n: {"n": n})
        .to_columns({"n": int})
        .filter(pl.col("n") >= 0)
        .with_columns(twice=pl.col("n") * 2)
    )
    return columns.select(half=pl.col("twice") // 2).to_records().map(lambda row: row["half"])


def behind_eager(verb: Callable[[Dataflow], Stream], behind: Callable[[Stream], Stream]) -> Dataflow:
    """The output of an eager region, told at once behind it."""
    flow = Dataflow("eager")
    with flow.region("now", policy=Eager()):
        stream = verb(flow)
    with flow.region("later", policy=Lazy(every=2)):
        stream = behind(stream)
    told(stream)
    return flow


def remainders(stream: Stream, over: Any) -> Stream:
    return stream.key_by(lambda n: n % 3).count(over=over).records()


def tossed(flow: Dataflow) -> Stream:
    """A few numbers of many, each time others."""

    def toss(number: int) -> bool:
        TOSSED[number] = DICE.random() < 0.2
        return TOSSED[number]

    numbers = flow.source("in", Iterable(range(90), batch=2, epoch_every=3))
    return numbers.filter(toss).nondeterministic("it tosses a coin").exchange(by=lambda number: number)


def coins(sink: Callable[[Stream], None]) -> Dataflow:
    flow = Dataflow("coins")
    sink(tossed(flow))
    return flow


def sensed(sink: Callable[[Stream], None], policy: object = None) -> Dataflow:
    """The readings of a sensor, which gives others when it is read again."""
    flow = Dataflow("sensed")

    def sense(number: int) -> tuple[int, int]:
        READINGS[number] = DICE.randrange(1_000_000)
        return number, READINGS[number]

    with flow.region("front", policy=policy):
        source = flow.source("in", Rate(sense, per_second=400, total=90, epoch_every=3))
        readings = source.nondeterministic("it reads a sensor").map(lambda pair: pair)
    sink(readings.exchange(by=lambda pair: pair[1]))
    return flow


def folded(sink: Callable[[Stream], None]) -> Dataflow:
    """A text of what came from two partitions, which meet in whatever order, and somebody behind who keeps part of it."""
    flow = Dataflow("folded")
    letters = flow.source("in", Iterable(partitioned=[["a"] * 40, ["b"] * 40], batch=1, epoch_every=4))
    texts = letters.key_by(lambda _: 0).fold(str, lambda text, letter: text + letter).records()
    sink(texts.exchange(by=str))
    return flow


def once_more(verb: Callable[[Stream], Stream], sink: Callable[[Stream], None]) -> Dataflow:
    """Numbers, of which some come a second time in a later epoch."""
    flow = Dataflow("once more")
    parts = [[2 * n + part for n in range(40)] for part in range(2)]
    with flow.region("front", policy=AtLeastOnce()):
        numbers = flow.source("in", Iterable(partitioned=parts, batch=2, epoch_every=3)).filter(lambda n: n % 5)
    sink(verb(numbers.map(lambda n: n)))
    return flow


def dice(sink: Callable[[Stream], None], policy: object) -> Dataflow:
    flow = Dataflow("dice")
    sink(words(flow).exchange(by=lambda word: 0).unary("die", Die).policy(policy).nondeterministic("it rolls a die"))
    return flow


# What is only seen of an output that is worse than a grade more


FRONTS: dict[str, Callable[[Dataflow], Stream]] = {
    "an exchange": lambda flow: numbers(flow).exchange(by=lambda n: n % 5),
    "a log": lambda flow: numbers(flow).map(lambda n: n).policy(Batch(log_outputs=True)),
    "a gate": lambda flow: eagerly(flow).map(lambda n: n),
    "a source that gathers": lambda flow: flow.columns("in", Batches(FRAMES, per_epoch=4)).to_records().map(NUMBER),
}
"""By what divides the records of a time otherwise when that is done again: a source and that."""
NUMBERS = range(48)
FRAMES = [pl.DataFrame({"n": [n]}) for n in NUMBERS]
NUMBER = itemgetter("n")


def numbers(flow: Dataflow) -> Stream:
    """The numbers, in single records."""
    return flow.source("in", Iterable(partitioned=[NUMBERS[::2], NUMBERS[1::2]], batch=1, epoch_every=2))


def eagerly(flow: Dataflow) -> Stream:
    """The numbers, from an eager region."""
    with flow.region("eager", policy=Eager()):
        return numbers(flow).map(lambda n: n)


def tagged(front: str, sink: Callable[[Stream], None]) -> Dataflow:
    """Batches decide where numbers go, and what is said of them."""
    flow = Dataflow(f"behind {front}")
    divided = FRONTS[front](flow)
    with flow.region("seldom", policy=Lazy(8)):
        pairs = divided.map_batches(lambda batch: [(n, len(batch)) for n in batch])
        sink(pairs.exchange(by=lambda pair: pair[1]).map(lambda pair: pair))
    return flow


def never(seen: Sequence[Publication]) -> bool:
    """Nothing is worse than precise."""
    return False


def comes_again(seen: Sequence[Publication]) -> bool:
    """An epoch of a worker comes twice."""
    return len({(worker, time) for worker, time, _ in seen}) < len(seen)


def record_comes_elsewhere(seen: Sequence[Publication]) -> bool:
    """A record comes in two epochs, although there is only one such."""
    at = {(row, time) for _, time, rows in seen for row in rows}
    return len(at) > len({row for row, _ in at})


def totals_come_late(seen: Sequence[Publication]) -> bool:
    """After an epoch the totals add up to less than there was up to it."""
    for last in range(14):
        there = [n for part in range(2) for n in range(part, min(80, 6 * (last + 1)), 2) if n % 5]
        told = sorted((time, number) for number, (_, time, _) in enumerate(seen) if time <= (last,))
        said = {key: count for _, number in told for key, count in seen[number][2]}
        if sum(said.values()) < len(there):
            return True
    return False


def record_comes_twice(seen: Sequence[Publication]) -> bool:
    """A record comes a second time, although there is only one such."""
    rows = [row for _, _, rows in seen for row in rows]
    return len(rows) > len(set(rows))


def counts_too_many(seen: Sequence[Publication]) -> bool:
    """The totals add up to more numbers than there are."""
    return sum({key: count for _, _, rows in seen for key, count in rows}.values()) > 64


def total_goes_back(seen: Sequence[Publication]) -> bool:
    """A total of a key is not greater than the one before."""
    counts: dict[Any, int] = {}
    for key, count in (row for _, _, rows in seen for row in rows):
        if count <= counts.get(key, 0):
            return True
        counts[key] = count
    return False


def counts_do_not_add_up(seen: Sequence[Publication]) -> bool:
    """The counts of all epochs, as they were told last, are not those of 48 numbers."""
    last = {(worker, time): rows for worker, time, rows in seen}
    return sum(count for rows in last.values() for _, count in rows) != 48


def coins_of_two_executions(seen: Sequence[Publication]) -> bool:
    """The last that was told of each epoch is not what passed the last time."""
    last = {(worker, time): rows for worker, time, rows in seen}
    return {n for rows in last.values() for n in rows} != {n for n, passed in TOSSED.items() if passed}


def readings_of_two_executions(seen: Sequence[Publication]) -> bool:
    """The last that was told of each epoch is not what the sensor gave the last time."""
    last = {(worker, time): rows for worker, time, rows in seen}
    return sorted(pair for rows in last.values() for pair in rows) != sorted(READINGS.items())


def numbers_do_not_add_up(seen: Sequence[Publication]) -> bool:
    """Numbers are missing among what was told last of each epoch, or are there twice."""
    last = {(worker, time): rows for worker, time, rows in seen}
    return sorted(n for rows in last.values() for n, _ in rows) != list(NUMBERS)


def several_dice(seen: Sequence[Publication]) -> bool:
    """Two dice, although all records go to one operator, which rolls once."""
    return len({die for _, _, rows in seen for _, die in rows}) > 1


@dataclass(frozen=True)
class Case:
    """A program, what its output is promised, how far that is the same in every run, and what shows that it is no better."""

    build: Callable[[], Dataflow]
    promised: Grade
    alike: Alike
    worse: Callable[[Sequence[Publication]], bool]


CASES = {
    "counts, told": Case(lambda: counted(told), Grade.REPEATING, Alike.EPOCHS, comes_again),
    "ticks, exactly once": Case(lambda: ticks(exactly, lambda s: s), Grade.PRECISE, Alike.RECORDS, never),
    "ticks, told": Case(lambda: ticks(told, lambda s: s), Grade.CONVERGENT, Alike.RECORDS, record_comes_elsewhere),
    "rows of ticks, told": Case(lambda: ticks(told, rows), Grade.CONVERGENT, Alike.RECORDS, record_comes_elsewhere),
    "totals of ticks, exactly once": Case(
        lambda: ticks(exactly, lambda s: remainders(s, "scope")), Grade.PRECISE, Alike.LATEST, total_goes_back
    ),
    "totals of ticks, told": Case(
        lambda: ticks(told, lambda s: remainders(s, "scope")), Grade.CONVERGENT, Alike.LATEST, total_goes_back
    ),
    "ticks of an epoch, exactly once": Case(
        lambda: ticks(exactly, lambda s: remainders(s, "time")), Grade.PRECISE, Alike.NOT, counts_do_not_add_up
    ),
    "ticks of an epoch, told": Case(
        lambda: ticks(told, lambda s: remainders(s, "time")), Grade.DIVERGENT, Alike.NOT, counts_do_not_add_up
    ),
    "coins, exactly once": Case(lambda: coins(exactly), Grade.PRECISE, Alike.NOT, coins_of_two_executions),
    "coins, told": Case(lambda: coins(told), Grade.DIVERGENT, Alike.NOT, coins_of_two_executions),
    "coins, told behind an eager region": Case(
        lambda: behind_eager(tossed, lambda s: s.map(lambda n: n)), Grade.REPEATING, Alike.NOT, comes_again
    ),
    "ticks of an epoch, told behind an eager region": Case(
        lambda: behind_eager(lambda flow: flow.source("in", Ticks()), lambda s: remainders(s, "time")),
        *(Grade.REPEATING, Alike.NOT, comes_again),
    ),
    "sensor, exactly once": Case(lambda: sensed(exactly), Grade.PRECISE, Alike.NOT, readings_of_two_executions),
    "sensor, told": Case(lambda: sensed(told), Grade.DIVERGENT, Alike.NOT, readings_of_two_executions),
    "sensor that is read once more": Case(
        lambda: sensed(exactly, AtLeastOnce()), Grade.DIVERGENT, Alike.NOT, readings_of_two_executions
    ),
    "texts of what meets, exactly once": Case(lambda: folded(exactly), Grade.PRECISE, Alike.EPOCHS, never),
    "once more, exactly once": Case(
        lambda: once_more(lambda s: s.exchange(by=str), exactly), Grade.REPEATING, Alike.EPOCHS, record_comes_twice
    ),
    "once more, told": Case(
        lambda: once_more(lambda s: s.exchange(by=str), told), Grade.REPEATING, Alike.EPOCHS, record_comes_twice
    ),
    "totals of what comes once more": Case(
        lambda: once_more(lambda s: remainders(s, "scope"), exactly), Grade.DIVERGENT, Alike.EPOCHS, counts_too_many
    ),
    "totals of what comes once more, each once": Case(
        lambda: once_more(lambda s: remainders(s.distinct(), "scope"), told),
        *(Grade.CONVERGENT, Alike.EPOCHS, totals_come_late),
    ),
    **{
        f"batches behind {front}, exactly once": Case(
            partial(tagged, front, exactly), Grade.PRECISE, Alike.NOT, numbers_do_not_add_up
        )
        for front in FRONTS
    },
    **{
        f"batches behind {front}, told": Case(
            partial(tagged, front, told), Grade.DIVERGENT, Alike.NOT, numbers_do_not_add_up
        )
        for front in ("an exchange", "a log")
    },
    "dice, by replay": Case(lambda: dice(exactly, LogHistory(every=1)), Grade.DIVERGENT, Alike.NOT, several_dice),
}


ADDS_UP = {
    "coins, told behind an eager region": coins_of_two_executions,
    "ticks of an epoch, told behind an eager region": counts_do_not_add_up,
}
"""Evidence that an output is worse than promised, although nothing in the program is the same in two runs."""


def seen_of(outside: Outside) -> list[Publication]:
    """All that was seen of the output, in order."""
    exact = sorted((time, worker, rows) for (_, worker, time), rows in outside.exactly.items())
    return [(worker, time, rows) for time, worker, rows in exact] or outside.commits["out"]


def struck(case: Case, seed: int) -> World:
    """A job whose workers die often, run to its end."""
    TOSSED.clear()
    READINGS.clear()
    world = often(case.build, 2, seed)
    world.run()
    return world


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_output_is_never_worse_than_promised_and_sometimes_no_better(name: str) -> None:
    case = CASES[name]
    simulation = Simulation(case.build, 2)
    right, alike = simulation.expected, simulation.alike
    assert case.alike <= alike["out"]
    found = False
    for seed in SEEDS:
        outside = struck(case, seed).outside
        assert (outside.promised("out"), outside.promises["out"].alike) == (case.promised, case.alike)
        outside.compare(right, alike)
        seen = seen_of(outside)
        worse = case.worse(seen)
        if name in ADDS_UP:
            assert not ADDS_UP[name](seen)
        assert not (worse and case.promised == Grade.PRECISE)
        found = found or worse
        if not SOAK and (found or (case.promised == Grade.PRECISE and seed == 1)):
            break
    assert found or case.promised == Grade.PRECISE, "it is better than promised"


@pytest.mark.parametrize(("name", "worse"), [("counts, told", "repeating"), ("ticks, told", "convergent")])
def test_promise_of_one_grade_more_is_found_out(name: str, worse: str) -> None:
    case = CASES[name]
    simulation = Simulation(case.build, 2)
    right, alike = simulation.expected, simulation.alike

    def runs() -> None:
        for seed in SEEDS:
            outside = struck(case, seed).outside
            more = Grade(case.promised + 1)
            outside.promises = {"out": replace(outside.promises["out"], any=more)}
            outside.compare(right, alike)

    with pytest.raises(Violation, match=f"'out' is promised to be {Grade(case.promised + 1)}, and is {worse}: it gave"):
        runs()


# Of what cannot be read again


@dataclass
class Line:
    """A source that gives each number once, to whoever asks."""

    rereadable = False
    left: deque[int] = field(default_factory=lambda: deque(range(120)))

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """One, for the first worker."""
        return [_End(self)] if worker == 0 else []


class _End:
    def __init__(self, line: Line) -> None:
        self.name = "line"
        self._line = line
        self._given = 0

    def read(self) -> Chunk | Wait | End:
        """The next number; four are an epoch."""
        if not self._line.left:
            return End()
        self._given += 1
        return Chunk((self._given - 1) // 4, [self._line.left.popleft()], self._given)

    def seek(self, position: Position) -> None:
        """Never."""
        raise AssertionError("a source that cannot be read again was told to go back")

    def ack(self, position: Position) -> None:
        """Nobody hears of it."""

    def close(self) -> None:
        """Nothing to release."""


def test_what_cannot_be_read_again_is_promised_a_gap_and_loses_some() -> None:
    for seed in SEEDS:
        line = Line()

        def build(line: Line = line) -> Dataflow:
            flow = Dataflow("line")
            with flow.region("front", policy=Ephemeral()):
                numbers = flow.source("in", line)
            numbers.exchange(by=lambda n: n).capture("out")
            return flow

        assert {promise.one for promise in promises(build().graph)} == {Grade.GAP}
        world = often(build, 2, seed)
        world.outside = Answers()
        world.run()
        assert not line.left
        if sum(map(len, world.outside.exactly.values())) < 120:
            return
    pytest.fail("it is better than promised")


def by_batch(source: Source) -> Dataflow:
    """A function of the batch behind a source, which repeats if an epoch of that is one batch."""
    flow = Dataflow("by batch")
    flow.source("in", source).map_batches(lambda batch: [(len(batch), each) for each in batch]).capture("out")
    return flow


@pytest.mark.parametrize(
    "source",
    [
        Iterable([1, 2, 3, 4], batch=2, epoch_every=2),
        Iterable([1, 2, 3, 4], batch=1, epoch_every=2),
        Batches([[1, 2], [3]]),
        Batches([[1, 2], [3]], per_epoch=2),
        Dealt([(n, n) for n in range(8)], 4),
    ],
)
def test_a_simulated_job_is_laid_out_and_promised_as_the_program_is(source: Source) -> None:
    """A source that stands for the user's says all that recovery asks of it: else another job is tried than runs."""
    graph = by_batch(source).graph
    world = World(lambda: by_batch(source), 2, 0, ())
    assert [info.repeats for info in world.layout.processors] == [
        info.repeats for info in lay_out(compile_plan(graph, 2)).processors
    ]
    assert tuple(world.outside.promises.values()) == promises(graph)
