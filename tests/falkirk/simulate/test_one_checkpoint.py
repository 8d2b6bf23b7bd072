"""One Ξ on its way through the house, from its processor to garbage, followed in a simulated job.

The job has one worker, and no faults. What carries the Ξ is the Ξ itself, in whatever it is packed; its processor with its
bound; its key in the journal; the name of the segment that it is written to; and the low-watermarks that contain it. Each
function that is given such a thing, or returns one, is on the way, and so are those that have called it. What only looks at the
machines (invariants, stories, checks of the simulator) is not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from monitor.coordination.records import KeptWatermarks
from recovery.agent.agent import Agent
from recovery.metadata import Bound, Xi
from recovery.place import Place
from recovery.policy import Lazy
from recovery.protocol import Watermarks
from recovery.store.segments import segment_name
from timely.io import Iterable

ROOT = Path(__file__).resolve().parents[3]
HOUSES = ("timely/", "recovery/", "monitor/", "runtime/")
LOOKS_ONLY = ("timely/story", "recovery/agent/invariants", "monitor/coordination/invariants")

FILES, FUNCTIONS = 28, 103
"""Files and functions on the way. They only fall, but for the tier in memory (decision 204), which added one and three."""

BESIDE = {"monitor/coordination/cuts", "runtime/recovery/store_client", "runtime/sources/driver"}
"""Files of the walk without the Ξ: before it is made, replaced by the simulator's, and after it."""


def build() -> Dataflow:
    flow = Dataflow("one")
    with flow.region("all", policy=Lazy(every=1)):
        numbers = flow.source("in", Iterable(range(160), epoch_every=4))
        numbers.map(lambda x: x + 1).capture("out")
    return flow


@dataclass
class Trace:
    """The way of the Ξ of a processor at a bound."""

    processor: int
    at: Bound
    segment: str | None = None
    functions: dict[tuple[str, str], None] = field(default_factory=dict)
    """By file and qualified name, in the order of first use."""

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        """Profile function: look at what a call is given and returns."""
        if event not in ("call", "return") or (place := _place(frame)) is None or _only_looks(frame):
            return
        given = frame.f_locals
        at_it = any(given.get(name) == self.processor for name in ("p", "processor")) and any(
            isinstance(each, tuple) and each == self.at for each in given.values()
        )
        if not at_it and not self.carries([value] if event == "return" else list(given.values())):
            return
        self.functions[place] = None
        above = frame.f_back
        while above is not None:
            if (place := _place(above)) is not None:
                self.functions[place] = None
            above = above.f_back

    def carries(self, thing: Any, depth: int = 6) -> bool:
        """True if the Ξ is in a thing, or what it has become."""
        if isinstance(thing, Xi):
            return thing.processor == self.processor and thing.bound == self.at
        if isinstance(thing, str):
            return thing == self.segment
        if isinstance(thing, Watermarks):
            return any(p == self.processor and bound >= self.at for p, _, bound in thing.changed)
        if isinstance(thing, KeptWatermarks):
            return thing.bounds[0][self.processor] >= self.at
        if isinstance(thing, tuple) and thing in (("cut", self.processor, self.at), (self.processor, self.at)):
            return True
        if depth and isinstance(thing, list | tuple) and len(thing) < 50:
            return any(self.carries(each, depth - 1) for each in thing)
        if depth and (type(thing).__module__.split(".")[0] + "/") in HOUSES:
            names = getattr(type(thing), "__struct_fields__", None) or getattr(type(thing), "__dataclass_fields__", ())
            return any(self.carries(getattr(thing, name, None), depth - 1) for name in names)
        return False


def _only_looks(frame: FrameType) -> bool:
    """True if a check of the simulator, or this test, has asked for it."""
    above: FrameType | None = frame
    while above is not None:
        name = above.f_code.co_filename
        if name.endswith("falkirk/simulate/checks.py") or above.f_code.co_name == "check":
            return True
        if name.endswith("falkirk/simulate/world.py"):
            return False
        above = above.f_back
    return True


@cache
def _file(path: str) -> str | None:
    if not path.startswith(f"{ROOT}/"):
        return None
    name = path[len(str(ROOT)) + 1 : -len(".py")]
    return name if name.startswith(HOUSES) and name not in LOOKS_ONLY else None


def _place(frame: FrameType) -> tuple[str, str] | None:
    file = _file(frame.f_code.co_filename)
    return None if file is None else (file, frame.f_code.co_qualname.replace(".<locals>", "").split(".<")[0])


def steps(world: World, processor: str) -> Iterator[tuple[Agent, int]]:
    """Step by step, the agent of the only worker, and the number of a processor."""
    world._small = 256  # bytes of segments that are joined with others: they are deleted the sooner
    while not world.finished:
        world.step()
        process = world._processes[Place(0)]
        if process is not None and process.recovery is not None:
            agent = process.recovery.agent
            yield agent, next(p for p, info in enumerate(agent.layout.processors) if info.name == processor)


@cache
def traced() -> Trace:
    """The trace of the Ξ of the second checkpoint of the output."""
    cuts = dict.fromkeys(
        saved.bound for agent, p in steps(World(build, 1, 1, ()), "out") for saved in agent.checkpoints._of[p].saved
    )
    before, trace = sys.getprofile(), Trace(-1, list(cuts)[1])
    try:
        for agent, trace.processor in steps(World(build, 1, 1, ()), "out"):
            sys.setprofile(trace)
            journal, key = agent.journal, ("cut", trace.processor, trace.at)
            if key in journal._places:
                trace.segment = segment_name(journal.owner, journal._places[key])
            elif key in journal:
                trace.segment = journal.in_flight
            elif trace.segment not in (None, *(segment_name(journal.owner, number) for number in journal._segments)):
                return trace
    finally:
        sys.setprofile(before)
    raise AssertionError(f"the segment of the checkpoint at {trace.at} is never deleted")


def test_the_way_of_a_checkpoint_gets_no_longer() -> None:
    functions = traced().functions
    files = {file for file, _ in functions}
    assert len(functions) <= FUNCTIONS, list(functions)
    assert len(files) <= FILES, sorted(files)
    assert len(files) == FILES, "there are fewer: let the number fall"


def test_it_is_followed_from_its_processor_to_garbage() -> None:
    """By what is on the way for certain, from one end to the other, in this order."""
    places = list(traced().functions)
    certain = [
        ("recovery/checkpoint/checkpoints", "Checkpoints._begin"),
        ("recovery/agent/reports", "Reports.gather"),
        ("monitor/coordination/options", "Options.durable"),
        ("runtime/processes/monitor_journal", "MonitorJournal.write"),
        ("recovery/agent/collection", "Collection.let_go"),
        ("recovery/store/journal", "Journal.dead"),
    ]
    assert [place for place in places if place in certain] == certain


def test_the_walk_of_the_architecture_names_the_files_that_it_passes() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    walk = page[page.index("## A Ξ") : page.index("## A rollback")]
    named = set(re.findall(r"^\| `([\w/]+)` \| `[\w.]+` \|", walk, re.MULTILINE))
    assert named - BESIDE == {file for file, _ in traced().functions}
    assert named > BESIDE


if __name__ == "__main__":
    for place in traced().functions:
        print(*place)
    print(len({file for file, _ in traced().functions}), len(traced().functions))
