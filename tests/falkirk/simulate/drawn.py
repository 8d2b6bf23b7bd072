"""Programs drawn from a seed: regions with any policies, that feed each other, in shapes that nobody has thought of.

All streams carry pairs of small integers. The same seed gives the same program. Rules that the framework checks (no loop in an
eager region, no state in an ephemeral one) are known here where that is easy; what is refused nevertheless is drawn again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, TypeAlias

import polars as pl

from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from recovery.layout import lay_out
from recovery.policy import (
    Amnesia,
    AtLeastOnce,
    Batch,
    Eager,
    Ephemeral,
    Lazy,
    LogHistory,
    PassiveStandby,
    Policy,
    Snapshot,
)
from tests.falkirk.simulate.drawn_divisions import Dealt
from tests.falkirk.simulate.drawn_steps import (
    BY_BATCH,
    EVERY,
    KEEPING,
    ORDERED,
    OWN,
    PER_TIME,
    SKIPPING,
    STATELESS,
    STEPS,
    UNDONE,
)
from tests.falkirk.simulate.programs import Clocked
from timely.dataflow.plan import compile_plan
from timely.errors import GraphError
from timely.io import Batches, Callback, Iterable, Memory

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
    "small frames": lambda at: [_numbers(30, at)],
    "single rows": lambda at: [_numbers(36, at), _numbers(30, at, 1), _numbers(33, at, 2)],
    "dealt": lambda at: [_numbers(72, at)],
}
"""By partition, the records of a source: with several workers most have no part of their own in some of them."""


End: TypeAlias = Callable[[Stream, str, str], None]


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
        if _accepted(regions):
            return regions
    raise AssertionError("unreachable")


def draw_divided(seed: int) -> tuple[Region, ...]:
    """A program in which the division of a time into batches counts, whenever that is done again.

    Records come in many small batches, or in one that is dealt out to all workers. They pass what divides them otherwise, then
    what depends on that, then an exchange; cuts are seldom, so that a survivor is ahead of whoever does a time again.
    """
    for attempt in count():
        regions = _draw_divided(Random(f"divided {seed}/{attempt}"))
        if _accepted(regions):
            return regions
    raise AssertionError("unreachable")


def draw_forgetful(seed: int) -> tuple[Region, ...]:
    """A program in which some regions lose their state with a worker, among all others."""
    for attempt in count():
        regions = _draw(Random(f"forgetful {seed}/{attempt}"), (*POLICIES, *4 * (lambda random: Amnesia(),)))
        if any(region.policy == Amnesia() for region in regions) and _accepted(regions):
            return regions
    raise AssertionError("unreachable")


def draw_standing(seed: int) -> tuple[Region, ...]:
    """A program in which some regions are in the memory of mates, among all others."""

    def standing(random: Random) -> Policy:
        every, durable = random.choice((0.05, 0.2, 2)), random.choice((0.5, 3.0))
        return PassiveStandby(every, durable, log_outputs=random.random() < 0.5)

    for attempt in count():
        regions = _draw(Random(f"standing {seed}/{attempt}"), (*POLICIES, *4 * (standing,)))
        if any(isinstance(region.policy, PassiveStandby) for region in regions) and _accepted(regions):
            return regions
    raise AssertionError("unreachable")


def is_exact(regions: Sequence[Region]) -> bool:
    """True if each output of a program is the same in every run, though not everybody could know that."""
    steps = {kind for region in regions for kind, _ in region.steps}
    return not steps & BY_BATCH and not any(
        isinstance(region.policy, AtLeastOnce) or region.clocked for region in regions
    )


def _accepted(regions: Sequence[Region]) -> bool:
    try:
        lay_out(compile_plan(built(regions).graph, 2))
    except GraphError:
        return False
    return True


def _draw_divided(random: Random) -> tuple[Region, ...]:
    def one(*kinds: str) -> tuple[str, int]:
        return random.choice(kinds), random.randrange(10)

    divides = (*4 * ("exchange",), *2 * ("logged",), "everywhere", "in order", "two ways")
    front = random.choice((Lazy(1, log_outputs=True), Batch(log_outputs=True), Lazy(8), Ephemeral()))
    seldom = (*3 * (Lazy(8),), *2 * (Lazy(8, log_outputs=True), LogHistory(8)), Snapshot(8), Eager())
    source = random.choice(("single rows", "single rows", "dealt", "dealt", "dealt", "small frames"))
    return (
        Region(front, (), tuple(one(*divides) for _ in range(random.randint(0, 1))), source=source),
        Region(
            *(random.choice(seldom), (0,)),
            (*(one(*divides) for _ in range(random.randint(0, 1))), one(*UNDONE)),
            entry=random.choice(("exchange", "map", "nothing")),
        ),
        Region(random.choice(seldom), (1,), (one(*UNDONE, *ORDERED, *ORDERED),), entry="nothing"),
    )


def _draw(random: Random, policies: Sequence[Callable[[Random], Policy]] = POLICIES) -> tuple[Region, ...]:
    regions: list[Region] = []
    for at in range(random.randint(2, 5)):
        policy = random.choice(policies)(random)
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


def built(regions: Sequence[Region], end: End | None = None, pause: float = 0.0) -> Dataflow:
    """The program of these regions. What leaves a region and is read by nobody goes to an output outside of all.

    Args:
        end: makes each output of a stream, of a kind and a name; None: one of that kind.
        pause: seconds that a source takes for each record; then it has many of them.
    """
    flow = Dataflow("drawn")
    output = end or _output
    streams: list[Stream] = []
    for at, region in enumerate(regions):
        with flow.region(f"r{at}", policy=region.policy):
            inside = [_entering(flow, at, region, streams, pause)]
            if region.own == "apart" and region.inputs:
                output(_source(flow, at, region, pause).map(lambda pair: pair), "memory", f"r{at}-apart")
            for kind, number in region.steps:
                inside.append(STEPS[kind](inside[-1], number))
            for name, after in region.outputs:
                output(inside[after], name, f"r{at}-{name}")
        streams.append(inside[-1])
    read = {number for region in regions for number in region.inputs}
    for at, stream in enumerate(streams):
        if at not in read:
            output(stream, ("capture", "memory")[at % 2], f"out{at}")
    return flow


def _entering(flow: Dataflow, at: int, region: Region, streams: Sequence[Stream], pause: float) -> Stream:
    if region.inputs:
        first, *others = (streams[number] for number in region.inputs)
        if region.own == "joined":
            others.append(_source(flow, at, region, pause))
        return first.concat(*others) if others else ENTRIES[region.entry](first)
    return _source(flow, at, region, pause)


def _source(flow: Dataflow, at: int, region: Region, pause: float) -> Stream:
    parts = SOURCES[region.source](at)
    if region.source == "small frames" and not pause:  # which sources gather
        rows = parts[0]
        frames = [pl.DataFrame(rows[i : i + 2], ["k", "v"], orient="row") for i in range(0, len(rows), 2)]
        columns = flow.columns(f"in{at}", Batches(frames, per_epoch=2 + at % 3))
        return columns.filter(pl.col("v") >= 0).to_records().map(lambda row: (row["k"], row["v"]))
    if region.source == "dealt":
        return flow.source(f"in{at}", Dealt(10 * parts[0] if pause else parts[0], 9, 9 * pause))
    if region.clocked:
        return flow.source(f"in{at}", Clocked(parts, 0.02))
    given: list[Any] = [lambda part=part: _slowly(part, pause) for part in parts] if pause else list(parts)
    batch = 1 if region.source == "single rows" else 2 + at % 2
    return flow.source(f"in{at}", Iterable(partitioned=given, batch=batch, epoch_every=3 + at % 3))


def _slowly(part: Sequence[tuple[int, int]], pause: float) -> Iterator[tuple[int, int]]:
    for number, (key, value) in enumerate(10 * part):
        time.sleep(pause)
        yield key, (value + number // len(part)) % 50


def _output(stream: Stream, kind: str, name: str) -> None:
    if kind == "capture":
        stream.capture(name)
    elif kind == "memory":
        stream.to(Memory(), name=name)
    else:
        stream.to(Callback(lambda epoch, batch: None), name=name)


def captured(stream: Stream, kind: str, name: str) -> None:
    """An end for `built`: a capture, whatever the kind."""
    stream.capture(name)


def program(seed: int) -> Callable[[], Dataflow]:
    """The program of a seed."""
    regions = draw(seed)
    return lambda: built(regions)
