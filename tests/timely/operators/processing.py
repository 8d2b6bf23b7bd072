"""Functions for `Keyed.process` that do what their records say, and the same by a plain loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Pair = tuple[Any, tuple[Any, ...]]
"""A key and steps: ("set", d), ("cancel", d), ("add", n), ("grow", n), ("forget",) or ("tell",)."""


def act(key: Any, steps: tuple[Any, ...], timers: Any) -> Iterator[Any]:
    """Do what a record says; its timers are relative to the present epoch."""
    for what, *of in [steps] if isinstance(steps[0], str) else steps:
        if what == "set":
            timers.set(timers.epoch + of[0])
        elif what == "cancel":
            timers.cancel(timers.epoch + of[0])
        elif what == "forget":
            timers.state = None
        elif what == "tell":
            yield key, timers.epoch, repr(timers.state), timers.due
        else:
            if timers.state is None:
                timers.state = {"n": 0, "all": []}
            if what == "add":
                timers.state = {**timers.state, "n": timers.state["n"] + of[0]}
            else:  # in place, and deep inside
                timers.state["all"].append(of[0])


def fire(key: Any, epoch: int, timers: Any) -> list[Any]:
    """Tell of the state; go on while there is some, and forget some of it."""
    told = ("fired", key, epoch, repr(timers.state), timers.due)
    state = timers.state
    if state is not None and state["n"] > 0:
        state["n"] -= 1
        timers.set(epoch + 1 + state["n"] % 2)
    elif state is not None and state["all"]:
        state["all"].pop(0)
        timers.set(epoch + 2)
    else:
        timers.state = None
    return [told]


class Plain:
    """The handle, over dictionaries."""

    def __init__(self, states: dict[Any, Any], set_for: dict[Any, set[int]], key: Any, epoch: int) -> None:
        self._states, self._set_for, self._key, self.epoch = states, set_for, key, epoch

    @property
    def state(self) -> Any:
        return self._states.get(self._key)

    @state.setter
    def state(self, state: Any) -> None:
        self._states[self._key] = state

    @property
    def due(self) -> tuple[int, ...]:
        return tuple(sorted(self._set_for.get(self._key, ())))

    def set(self, epoch: int) -> None:
        self._set_for.setdefault(self._key, set()).add(epoch)

    def cancel(self, epoch: int) -> None:
        self._set_for.get(self._key, set()).discard(epoch)


def by_loop(epochs: list[list[Pair]]) -> dict[int, list[Any]]:
    """What comes out at each epoch. Keys are of one type, and steps in their own order, which is that of their content."""
    states: dict[Any, Any] = {}
    set_for: dict[Any, set[int]] = {}
    out: dict[int, list[Any]] = {}
    epoch = 0
    while epoch < len(epochs) or any(set_for.values()):
        told: list[Any] = []
        for key, steps in sorted(
            epochs[epoch] if epoch < len(epochs) else [], key=lambda pair: (pair[0], repr(pair[1]))
        ):
            told += act(key, steps, Plain(states, set_for, key, epoch))
        for key in sorted(key for key, of in set_for.items() if epoch in of):
            set_for[key].discard(epoch)
            told += fire(key, epoch, Plain(states, set_for, key, epoch))
        if told:
            out[epoch] = told
        epoch += 1
    return out
