"""Programs drawn from a seed: regions with any policies, that feed each other, in shapes that nobody has thought of.

All streams carry pairs of small integers. The same seed gives the same program. Rules that the framework checks (no loop in an
eager region, no state in an ephemeral one) are known here where that is easy; what is refused nevertheless is drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, TypeAlias

import polars as pl

from recovery.layout import lay_out
from recovery.policies import AtLeastOnce, Batch, Eager, Ephemeral, Lazy, LogHistory, Policy, Snapshot
from tests.falkirk.simulate.programs import Clocked, Gathering, Holds
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.plan import compile_plan
from timely.dataflow.stream import Stream
from timely.errors import GraphError
from timely.io import Callback, Iterable, Memory
from timely.operators import agg
from timely.operators.base import Context, Operator
from timely.operators.window_shapes import Epochs
from timely.time import Time

Step: TypeAlias = Callable[[Stream, int], Stream]
"""Takes a number from 0 to 9, too, which makes it another one each."""


EVERY = (1, 2, 4, 0.1, 0.3)
"""Intervals between cuts: epochs, and seconds."""


class Ranked(Gathering):
    """Gives each record of an epoch a rank among all that its key has had, in the order of the records."""

    def on_notify(self, ctx: Context, time: Time) -> None:
        before = self._kept.read(time)
        ranks: dict[int, int] = {}
        out = []
        for key, value in sorted(self.gathered(time)):
            ranks[key] = ranks.get(key, before.get(key, 0)) + 1
            out.append((key, (value + ranks[key]) % 50))
        self._kept.write(time, ranks)
        ctx.send(out)


class Ahead(Operator):
    """Sends some records into later epochs, or into later iterations of a loop."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        for later in (1, 3):
            ctx.send_at((*time[:-1], time[-1] + later), [record for record in batch if sum(record) % 4 == later])
        ctx.send([record for record in batch if sum(record) % 2 == 0])


class Asked(Operator):
    """Has each record looked at by a job outside of the worker."""

    repeats = True

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        for record in batch:
            ctx.start(lambda record=record: (record[1] % 11, (record[0] + record[1]) % 50))

    def on_result(self, ctx: Context, time: Time, result: Any) -> None:
        ctx.send([result])


def _columns(stream: Stream, n: int) -> Stream:
    rows = stream.to_columns({"k": pl.Int64, "v": pl.Int64})
    over = "scope" if n % 2 else "time"
    totals = rows.group_by("k").agg(over=over, v=agg.sum("v"), most=agg.max("v"))
    return totals.to_records().map(lambda row: (row["k"], (row["v"] + row["most"]) % 50))


def _loop(stream: Stream, n: int, skips: bool = False) -> Stream:
    step = 7 + n

    def rounds(inner: Stream) -> Stream:
        less = inner.map(lambda pair: (pair[0], pair[1] - step)).filter(lambda pair: pair[1] > 0)
        spread = less.exchange(by=lambda pair: pair[1]) if n % 2 else less
        late = spread.unary("skip", Ahead, notifies=False) if skips else spread
        return late.distinct() if n % 3 else late

    return stream.iterate(rounds, limit=30)


def _history(stream: Stream, n: int) -> Stream:
    return stream.keyed().max().policy(LogHistory(EVERY[n % len(EVERY)], log_outputs=n % 2 == 0)).records()


def _joined(stream: Stream, n: int) -> Stream:
    few = stream.filter(lambda pair: pair[1] % 4 == n % 4).distinct().keyed()
    pairs = stream.distinct().keyed().join(few).records()
    return pairs.map(lambda found: (found[0], (found[1][0] + found[1][1]) % 50))


STATELESS: dict[str, Step] = {
    "map": lambda stream, n: stream.map(lambda pair: ((pair[0] * 3 + n) % 11, (pair[1] + n) % 50)),
    "filter": lambda stream, n: stream.filter(lambda pair: (pair[0] + pair[1]) % 5 != n % 5),
    "twice": lambda stream, n: stream.flat_map(
        lambda pair: [pair, (pair[1] % 11, pair[0])] if pair[1] % 3 == 0 else []
    ),
}
PER_TIME: dict[str, Step] = {
    "exchange": lambda stream, n: stream.exchange(by=lambda pair: pair[n % 2]),
    "sums of an epoch": lambda stream, n: stream.keyed().sum(over="time").records(),
    "distinct in an epoch": lambda stream, n: stream.distinct(over="time"),
}
KEEPING: dict[str, Step] = {
    "sums": lambda stream, n: stream.keyed().sum().records().map(lambda pair: (pair[0], pair[1] % 50)),
    "most": lambda stream, n: stream.keyed().max().records(),
    "counts": lambda stream, n: stream.key_by(lambda pair: pair[1] % (n + 2)).count().records(),
    "distinct": lambda stream, n: stream.distinct(),
    "ranked": lambda stream, n: stream.exchange(by=lambda pair: pair[0]).unary("ranked", Ranked),
    "windows": lambda stream, n: (
        stream.key_by(lambda pair: pair[0]).window(Epochs(1 + n % 4)).count().records().map(_small)
    ),
    "columns": _columns,
    "joined": _joined,
    "ahead": lambda stream, n: stream.unary("ahead", Ahead, notifies=False),
}
OWN: dict[str, Step] = {
    "loop": _loop,
    "history": _history,
    "held": lambda stream, n: stream.unary("held", Holds, holds=True),
    "asked": lambda stream, n: stream.exchange(by=lambda pair: pair[n % 2]).unary("asked", Asked, holds=True),
}
"""What cannot be in some regions that are saved as one."""
SKIPPING: dict[str, Step] = {"skipping loop": lambda stream, n: _loop(stream, n, skips=True)}


def _small(found: Any) -> tuple[int, int]:
    """A pair of small integers, whatever a window gives."""
    numbers = [n for n in _flat(found) if isinstance(n, int)]
    return numbers[0] % 11, sum(numbers) % 50


def _flat(found: Any) -> list[Any]:
    return [n for each in found for n in _flat(each)] if isinstance(found, tuple | list) else [found]


STEPS = {**STATELESS, **PER_TIME, **KEEPING, **OWN, **SKIPPING}

ENTRIES: dict[str, Callable[[Stream], Stream]] = {
    "map": lambda stream: stream.map(lambda pair: pair),
    "exchange": lambda stream: stream.exchange(by=lambda pair: pair[1]),
    "nothing": lambda stream: stream,
}
"""The first operator of a region that one stream enters: what crosses its border may go to other workers at once."""


def _numbers(size: int, at: int, part: int = 0) -> list[tuple[int, int]]:
    return [((i * (i + part + at)) % 11, (i * 7 + at) % 50) for i in range(size)]


SOURCES: dict[str, Callable[[int], list[list[tuple[int, int]]]]] = {
    "two parts": lambda at: [_numbers(20, at), _numbers(24, at, 1)],
    "ends early": lambda at: [_numbers(2, at), _numbers(26, at, 1)],
    "a part without anything": lambda at: [[], _numbers(20, at)],
    "one part": lambda at: [_numbers(30, at)],
    "one epoch": lambda at: [_numbers(3, at)],
    "nothing": lambda at: [[]],
}
"""By partition, the records of a source: with several workers most have no part of their own in some of them."""


@dataclass(frozen=True, slots=True)
class Region:
    """One region: its policy, the streams that enter it (numbers of regions before it; none: a source), its operators.

    `outputs`: inside of it, each of what the so many-th of its operators gives; 0: of what enters. `own`: of a region that
    streams enter, a source of its own, which is "joined" to them, or "apart" with an output of its own.
    """

    policy: Policy
    inputs: tuple[int, ...]
    steps: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...] = ()
    entry: str = "map"
    source: str = "two parts"
    clocked: bool = False
    own: str = ""


POLICIES: tuple[Callable[[Random], Policy], ...] = (
    lambda random: Ephemeral(),
    lambda random: Batch(log_outputs=random.random() < 0.6),
    lambda random: Lazy(random.choice(EVERY), log_outputs=random.random() < 0.5),
    lambda random: LogHistory(random.choice(EVERY), log_outputs=random.random() < 0.5),
    lambda random: Eager(),
    lambda random: Snapshot(random.choice(EVERY)),
    lambda random: AtLeastOnce(),
)


def draw(seed: int) -> tuple[Region, ...]:
    """A program that the framework accepts."""
    for attempt in count():
        regions = _draw(Random(f"{seed}/{attempt}"))
        try:
            lay_out(compile_plan(built(regions).graph, 2))
        except GraphError:
            continue
        return regions
    raise AssertionError("unreachable")


def _draw(random: Random) -> tuple[Region, ...]:
    regions: list[Region] = []
    for at in range(random.randint(2, 5)):
        policy = random.choice(POLICIES)(random)
        fed = at > 0 and not isinstance(policy, AtLeastOnce) and random.random() < 0.8
        inputs = tuple(random.sample(range(at), min(at, random.choice((1, 1, 2, 3))))) if fed else ()
        kinds = list(STATELESS)
        if not isinstance(policy, AtLeastOnce):
            kinds += PER_TIME
        if not isinstance(policy, AtLeastOnce | Ephemeral | Batch):
            kinds += 2 * list(KEEPING)
        if not isinstance(policy, AtLeastOnce | Eager):
            kinds += 2 * list(OWN)
        if not isinstance(policy, AtLeastOnce | Eager | Ephemeral):
            kinds += list(SKIPPING)
        steps = tuple((random.choice(kinds), random.randrange(10)) for _ in range(random.randint(1, 4)))
        outputs = tuple(
            (name, random.randint(0, len(steps))) for name in ("capture", "memory", "callback") if random.random() < 0.2
        )
        source = random.choice(("two parts", "two parts", *SOURCES))
        entry = random.choice(("map", *ENTRIES))
        clocked, own = random.random() < 0.1, random.choice(("", "", "", "joined", "apart"))
        regions.append(Region(policy, inputs, steps, outputs, entry, source, clocked, own))
    return tuple(regions)


def built(regions: Sequence[Region]) -> Dataflow:
    """The program of these regions. What leaves a region and is read by nobody goes to an output outside of all."""
    flow = Dataflow("drawn")
    streams: list[Stream] = []
    for at, region in enumerate(regions):
        with flow.region(f"r{at}", policy=region.policy):
            inside = [_entering(flow, at, region, streams)]
            if region.own == "apart" and region.inputs:
                _output(_source(flow, at, region).map(lambda pair: pair), "memory", f"r{at}-apart")
            for kind, number in region.steps:
                inside.append(STEPS[kind](inside[-1], number))
            for name, after in region.outputs:
                _output(inside[after], name, f"r{at}-{name}")
        streams.append(inside[-1])
    read = {number for region in regions for number in region.inputs}
    for at, stream in enumerate(streams):
        if at not in read:
            _output(stream, ("capture", "memory")[at % 2], f"out{at}")
    return flow


def _entering(flow: Dataflow, at: int, region: Region, streams: Sequence[Stream]) -> Stream:
    if region.inputs:
        first, *others = (streams[number] for number in region.inputs)
        if region.own == "joined":
            others.append(_source(flow, at, region))
        return first.concat(*others) if others else ENTRIES[region.entry](first)
    return _source(flow, at, region)


def _source(flow: Dataflow, at: int, region: Region) -> Stream:
    parts = SOURCES[region.source](at)
    if region.clocked:
        return flow.source(f"in{at}", Clocked(parts, 0.02))
    return flow.source(f"in{at}", Iterable(partitioned=parts, batch=2 + at % 2, epoch_every=3 + at % 3))


def _output(stream: Stream, kind: str, name: str) -> None:
    if kind == "capture":
        stream.capture(name)
    elif kind == "memory":
        stream.to(Memory(), name=name)
    else:
        stream.to(Callback(lambda epoch, batch: None), name=name)


def program(seed: int) -> Callable[[], Dataflow]:
    """The program of a seed."""
    regions = draw(seed)
    return lambda: built(regions)
