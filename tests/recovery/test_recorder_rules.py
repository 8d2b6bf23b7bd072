"""The recorder: M̄, N̄, D̄, requests, capabilities and what was received.

Each rule has a scenario made for it that comes out otherwise without the rule.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from recovery.layout import EdgeInfo
from recovery.memory.channels import Channels
from recovery.memory.recorder import WorkerRecorder
from tests.recovery.jobs import agent_of, job, named
from tests.recovery.layouts import FIREWALL, LOOP, layout
from tests.support.mutation import GONE, Change, Rules
from timely.data.messages import Message

RULES = Rules()
rule = RULES.add


def let_out() -> tuple[Any, ...]:
    """Output that half of epoch 3 let out of a loop is of epoch 3; a loop that let nothing out discarded nothing."""
    recorder = WorkerRecorder(layout(*LOOP, 1), 0)
    quiet = recorder.sent_bounds(5)
    recorder.sent(5, 0, (3, 4), (3,), [1])
    return quiet, recorder.discards(5, (3, 5)), recorder.sent_bounds(5)


OUT = (((0,),), ((4,),), ((4,),))
rule(
    "discarded by an egress",
    "an unlogged structured operator has D̄(e, g) = ↓σ(g), never φ(e)(g)",
    let_out,
    OUT,
    Change(WorkerRecorder, "discards", "image(edge.discarding, bound)", "project(edge.summary, bound)"),
)
rule(
    "exact discards",
    "record the times actually discarded wherever that is cheap",
    let_out,
    OUT,
    Change(WorkerRecorder, "sent_bounds", "not edge.logged and greatest", "not edge.logged"),
)


def into_the_future() -> Any:
    plain = layout("a chain, b chain", "a=>b", 1)
    recorder = WorkerRecorder(structs.replace(plain, edges=(structs.replace(plain.edges[0], ahead=True),)), 0)
    recorder.sent(0, 0, (1,), (1,), [1])
    recorder.sent(0, 0, (1,), (4,), [2])
    logged = [(entry.event, entry.time) for entries in recorder.logs.values() for entry in entries]
    return recorder.discards(0, (2,)), logged


rule(
    "future",
    "operators that send into the future record (event time → message time) pairs: what D̄ = ↓σ does not tell of is logged",
    into_the_future,
    (((2,),), [((1,), (4,))]),
    Change(EdgeInfo, "logs", "self.ahead and time != event", GONE),
)


def requests() -> Any:
    recorder = WorkerRecorder(layout("a chain, b chain", "a=>b", 1), 0)
    for event, time in ((0, 1), (1, 1), (1, 3), (2, 4)):
        recorder.requested(0, (event,), (time,))
    return recorder.requests(0, (2,))


def holdings() -> Any:
    plain = layout("a chain, b chain", "a=>b", 1)
    infos = (structs.replace(plain.processors[0], finds_capabilities=True), plain.processors[1])
    recorder = WorkerRecorder(structs.replace(plain, processors=infos), 0)
    for event, time, diff in ((0, 1, 1), (1, 3, 1), (2, 4, 1), (1, 5, 1), (1, 5, -1), (2, 3, -1)):
        recorder.held(0, (event,), (time,), diff)
    return recorder.held_at(0, (2,))


for _name, _change in {
    "held outside": Change(WorkerRecorder, "held_at", "not event or holds(bound, event)", "True"),
    "held no more": Change(WorkerRecorder, "held_at", "not holds(bound, time)", "True"),
    "given back": Change(WorkerRecorder, "held_at", "counts[time] += diff", "counts[time] += max(diff, 0)"),
}.items():
    rule(_name, "S(p, f) holds the capabilities kept within f for times outside it", holdings, (((3,), 1),), _change)
REQUESTS = "S(p, f) holds the requests made within f and not yet delivered within f, each with its event's time"
for _name, _change in {
    "requests made within f": Change(WorkerRecorder, "requests", "holds(bound, event)", "True"),
    "requests not delivered within f": Change(WorkerRecorder, "requests", "not holds(bound, time)", "True"),
    "time of the event that asked": Change(WorkerRecorder, "requested", "(event, time)", "(time, time)"),
}.items():
    rule(_name, REQUESTS, requests, (((1,), (3,)),), _change)


def taken() -> Any:
    """A message comes, comes again, and comes again after its receiver was rolled back below it, and only below it."""
    recorder = WorkerRecorder(layout(*FIREWALL, 2), 1)
    edge = 1
    first, second = (Message(edge, n, (n,), (n,), b"", []) for n in (1, 3))
    found = [recorder.taken(0, message) for message in (first, second, first, second)]
    recorder.restored(2, (2,), None)
    return found + [recorder.taken(0, message) for message in (first, second)]


RECEIVED = "f(dst) = ⊤: what was received is not taken again; f(dst) = g: what lies outside g is"
for _name, _change in {
    "taken once": Change(WorkerRecorder, "taken", "message.number in known", "False"),
    "taken again after a rollback": Change(
        Channels, "_undo", "[number for number, time in known.items() if ...]", "[]"
    ),
    "not taken again within f": Change(
        Channels, "_undo", "[number for number, time in known.items() if ...]", "list(known)"
    ),
}.items():
    rule(_name, RECEIVED, taken, [True, True, False, False, False, True], _change)


def history_within() -> Any:
    agent = agent_of(job("ordered", 1), 0)
    p = named(agent, "first")
    before = len(agent.recorder.histories[p])
    agent.collection.let_go(p, (2,))
    return before > 0 and len(agent.recorder.histories[p]) == before


rule(
    "history within W",
    "`LogHistory`'s events inside W are its state",
    history_within,
    True,
    Change(
        WorkerRecorder,
        "collect",
        "memory = self._of[processor]",
        "memory = self._of[processor]\nself.histories[processor] = []",
    ),
)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()
