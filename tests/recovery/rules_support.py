"""Breaking one rule of recovery, and seeing whether anybody notices.

A rule is broken by a small change of the product's text, as a programmer could make it by mistake: `Change` says where, what
stands there, and what stands there instead. It must stand there exactly once; otherwise the rule is now written in
another way, and its change has to follow.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

import pytest

from falkirk.simulate.faults import Faults
from falkirk.simulate.world import World
from tests.recovery.programs import PROGRAMS
from timely.dataflow import Dataflow
from timely.drivers.memory import Cluster

STEPS = 12_000
"""A run with all rules takes less than two thousand."""


@dataclass(frozen=True)
class Change:
    """In `owner.name` (a function, or a method or property of a class) `new` takes the place of `old`."""

    owner: Any
    name: str
    old: str
    new: str

    def make(self, patch: pytest.MonkeyPatch) -> None:
        """Change the product until `patch` is undone."""
        found = inspect.getattr_static(self.owner, self.name)
        wrap: Callable[[Any], Any] = lambda function: function  # noqa: E731
        if isinstance(found, property):
            wrap, found = property, found.fget
        elif isinstance(found, staticmethod):
            wrap, found = staticmethod, found.__func__
        assert isinstance(found, FunctionType), f"{self.owner}.{self.name} is no function"
        text = getattr(found, "text", None) or textwrap.dedent(inspect.getsource(found))
        times = text.count(self.old)
        assert times == 1, f"{self.old!r} stands {times} times in {found.__qualname__}: how is the rule written now?"
        text = text.replace(self.old, self.new)
        lines = text.splitlines()
        while lines[0].startswith("@"):
            del lines[0]
        scope: dict[str, Any] = {}
        code = compile("from __future__ import annotations\n" + "\n".join(lines), inspect.getfile(found), "exec")
        exec(code, found.__globals__, scope)
        made = scope[found.__name__]
        made.text = text  # for a second change of the same function
        patch.setattr(self.owner, self.name, wrap(made))


def changed(changes: Sequence[Change], run: Callable[[], Any]) -> Any:
    """What `run` gives while the product is changed."""
    with pytest.MonkeyPatch.context() as patch:
        for change in changes:
            change.make(patch)
        return run()


@cache
def expected(program: str) -> dict[str, dict[Any, list[Any]]]:
    """What each capture of a program gives, by time, without recovery and without failures."""
    build = PROGRAMS[program]
    cluster = Cluster(build(), 1, None)
    cluster.run()
    found: dict[str, dict[Any, list[Any]]] = {}
    for node in build().graph.of_kind("capture"):
        times = found[node.name] = {}
        for time, batch in cluster.captured(node.name):
            times.setdefault(time, []).extend(batch)
    return {
        name: {time: sorted(each, key=repr) for time, each in sorted(times.items())} for name, times in found.items()
    }


def simulated(program: str, workers: int, seed: int, faults: Faults) -> str | None:
    """What is wrong with a simulated run: an error, another output, or that it has no end. None if it is right."""
    right = expected(program)
    world = World(PROGRAMS[program], workers, seed, faults)
    try:
        world.run(STEPS)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for name, times in right.items():
        got = world.outside.result(name)
        for time in sorted(times.keys() | got.keys()):
            if got.get(time) != times.get(time):
                return f"{name} at {time}: {got.get(time)} instead of {times.get(time)}"
    return None
