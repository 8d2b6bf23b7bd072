"""Rules of rollback, each with a scenario made for it that comes out otherwise without the rule. All of them:

| rule (the section, and what it says) | where it is broken |
|---|---|
| Frontiers: M̄, D̄ as maximal times; φ not too large | simulated: delivered, sent, discarded, projection too large |
| Frontiers: reports are monotone; sends are disciplined; ↓σ(g), not φ; future sends; exact recording | here; simulated: ahead |
| Frontiers: acting on completeness is a notification | queues: acted on |
| Frontiers: f is complete when ...; requests; capabilities | here; queues; steps; seeds; simulated |
| Restorable: what was reported, memory of living ones, C(d), cycles, ⊤ is not Finished | here |
| Restorable: memory only from where it came back | batches |
| Restorable: g = f ∩ φ ∩ σ⁻¹ | simulated: projection, inverse projection; here: kept by an egress |
| Restorable: W is journaled, then announced; a rebuilt monitor falls back to it | simulated: W before ..., rebuilt monitor |
| An exchange is W×W physical edges | simulated: exchange |
| Round 1: stop, marker behind everything, queue, report; cuts that were begun, or come late | queues; steps |
| Round 2: all known, durable, applied by all, fences | simulated; seeds: idempotent, behind, fenced |
| Round 2: F*' = {f' ⊆ f(p)}; earlier generations and incarnations | rounds |
| Round 2: what a reader ignores; decisions as long as they are needed | store; simulated: void checkpoints |
| Round 3: what stays in queues, what is sent again; numbers; order | queues; `test_queues`; simulated; seeds, store: numbers |
| Round 4: state, requests, replay | simulated; seeds |
| Round 5: seeds, one owner each, all in before anything; old generations | seeds; simulated |
| Round 6: the barrier | simulated: all seeds, frontiers wait for seeds |
| Deadlines, of each step; who is in time | steps; seeds |
| Garbage: S within W, shared runs, L within W of the receiver, histories, compaction | seeds; store; simulated |
| Garbage: W when all are there; idle processors and workers report | steps |
| Stores: checksums, torn tails, identity, nothing deleted too early | store |
| Sources: positions, of every partition; sinks: staged, released within W | simulated; seeds |
| Batches: merged, first in first out, numbered as logged; fusion; fingerprints; capabilities | batches; seeds: fusion |
| The fixed point itself; the incremental one | `fixed_point/test_mutations.py`, `fixed_point/test_forest_rules.py` |
| Routing hashes are stable | `tests/timely/data/test_routing.py` |

Not built: regions of sequence numbers and their bridges, Chandy-Lamport, history-dependent φ (Ξ
and f_n go together here), `AtLeastOnce`, early release of deterministic sinks, rescaling (refused: seeds).

`test_rules_queues.py`, `_seeds`, `_rounds`, `_steps`, `_store` and `_batches` continue this file;
`test_rules_simulated.py` does the same with whole jobs, `test_rules_searched.py` with many of them (soak).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

import monitor.coordination.handshake
import monitor.coordination.options
import recovery.fixed_point.solve
import recovery.store.reading
from monitor.coordination.options import Options
from recovery.errors import ReportError
from recovery.fixed_point.solve import LIVE, CheckpointChain, Live, PhysicalEdge, solve
from recovery.fixed_point.solve import AnyFrontier as Stateless
from recovery.layout import EdgeInfo
from recovery.metadata import Xi
from recovery.protocol import InMemory
from recovery.recorder import WorkerRecorder
from tests.recovery.jobs import agent_of, job
from tests.recovery.layouts import FIREWALL, LINE, LOOP, layout
from tests.support.mutation import GONE, Change, Instead, Rule
from timely.errors import OperatorError
from timely.operators.base import Capability, Context
from timely.time import Summary, Time
from timely.worker.worker import Worker

SAME = Summary.identity(1)


RULES: dict[str, Rule] = {}


def rule(name: str, says: str, scenario: Callable[[], Any], right: Any, *changes: Change | Instead) -> None:
    RULES[name] = Rule(says, scenario, right, changes)


# ---------------------------------------------------------------------------------- frontiers and metadata


def reports() -> list[str]:
    """Reports that no correct processor makes."""
    refused = []
    for second in ([Xi(0, (4,), ((2,),))], [Xi(0, (4,), ((4,),)), Xi(0, (5,), ((3,),))]):
        available = Options(layout("read source, out any", "read>out", 1))
        available.durable(0, 0, (3,), [Xi(0, (3,), ((6,),))])
        try:
            available.join(0, [Xi(0, (3,), ((6,),)), *second])
        except ReportError as error:
            refused.append(type(error).__name__)
    return refused


rule(
    "monotone",
    "D̄ must be monotone in f: reject a report that is not",
    reports,
    ["ReportError"] * 2,
    Change(
        monitor.coordination.options,
        "_covers",
        "all((x >= y for x, y in zip(larger, smaller)))",
        "True or all((x >= y for x, y in zip(larger, smaller)))",
    ),
)


class _Nowhere:
    def request(self, *_: Any) -> None: ...

    def hold(self, *_: Any) -> None: ...

    def start(self, *_: Any) -> None: ...


def undisciplined() -> list[str]:
    """An old capability, a message into the past, a request in the past."""
    ctx = Context(_Nowhere(), 0, "op", "here.py:1", 0, 1)
    ctx.time = (1,)
    capability = ctx.retain()
    ctx.time = (2,)
    refused = []
    actions: list[Callable[[], None]] = [
        lambda: capability.send([1]),
        lambda: ctx.send_at((1,), [1]),
        lambda: ctx.notify_at((1,)),
    ]
    for action in actions:
        try:
            action()
        except OperatorError:
            refused.append("refused")
    return refused


DISCIPLINE = "an event at t sends only at times ≥ σ(t); a retained capability is used only in an event at its own time"
rule(
    "capability",
    DISCIPLINE,
    undisciplined,
    ["refused"] * 3,
    Change(Capability, "send", "ctx.time != self.time", "False"),
)
rule("later", DISCIPLINE, undisciplined, ["refused"] * 3, Change(Context, "check_later", "not leq(now, time)", GONE))


def let_out() -> tuple[Any, ...]:
    """What half of epoch 3 let out of a loop is of epoch 3; a loop that let nothing out discarded nothing."""
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


def half_an_epoch() -> Any:
    """A living loop, complete up to (3, 5), whose egress leads to one that has only epochs before 3."""
    inside = Live((3, 5), {}, (3, 5), ((4,),), (False,))
    return solve([PhysicalEdge(0, 1, Summary.egress(2))], [inside, CheckpointChain([((3,), ())])])


rule(
    "kept by an egress",
    "σ⁻¹(h) of an egress leaves out (a, 0)",
    half_an_epoch,
    [(3, 0), (3,)],
    Change(recovery.fixed_point.solve._Descent, "_spread", "inverse(edge.backwards, held)", "self.bound[r]"),
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
    "held outside": Change(WorkerRecorder, "held_at", "event < bound <= time", "bound <= time"),
    "held no more": Change(WorkerRecorder, "held_at", "event < bound <= time", "event < bound"),
    "given back": Change(WorkerRecorder, "held_at", "counts[time] += diff", "counts[time] += max(diff, 0)"),
}.items():
    rule(_name, "S(p, f) holds the capabilities kept within f for times outside it", holdings, (((3,), 1),), _change)


REQUESTS = "S(p, f) holds the requests made within f and not yet delivered within f, each with its event's time"
for _name, _change in {
    "requests made within f": Change(WorkerRecorder, "requests", "each[0] < bound <= each[1]", "bound <= each[1]"),
    "requests not delivered within f": Change(
        WorkerRecorder, "requests", "each[0] < bound <= each[1]", "each[0] < bound"
    ),
    "time of the event that asked": Change(WorkerRecorder, "requested", "(event, time)", "(time, time)"),
}.items():
    rule(_name, REQUESTS, requests, (((1,), (3,)),), _change)


def asked_twice() -> Any:
    """A later event asks for a notification first, an earlier one then, and one that comes between the two."""
    world = job("logs", 1)
    agent = agent_of(world, 0)
    p = next(p for p, each in enumerate(agent._plan.processors) if each.watch is not None)
    ctx = agent.worker.runtimes[p].ctx
    agent.recorder._of[p].requests.clear()
    waiting = len(agent.worker.pending())
    for event in (103, 101, 102):
        ctx.time = (event,)
        ctx.notify_at((110,))
    known = [list(agent.recorder.requests(p, (bound,))) for bound in (101, 102, 104)]
    return known, len(agent.worker.pending()) - waiting, ctx.pending[(110,)]


def only_the_first(
    self: Worker, op: int, event: Time, time: Time, again: bool = False, request: Any = Worker.request
) -> None:
    if not again:
        request(self, op, event, time)


ASKED = ([[], [((101,), (110,))], [((103,), (110,)), ((101,), (110,))]], 1, (101,))
rule(
    "asked by an earlier event as well",
    "a request that a later event has made already is made within f all the same",
    asked_twice,
    ASKED,
    Instead(Worker, "request", only_the_first),
)


# ---------------------------------------------------------------------------------- what there is to roll back to


def reported() -> Any:
    """All failed; the source has persisted 4 and 6, and the stateless processor behind it had reported 4."""
    available = Options(layout("read source, q any", "read>q", 1))
    available.complete(0, ((4,),))
    available.join(0, [Xi(0, (4,), ((4,),)), Xi(0, (6,), ((6,),))])
    return available.decide({})


rule(
    "reported",
    "F* of a stateless processor: every frontier ⊆ the completed frontier that it has reported",
    reported,
    (((4,), (4,)),),
    Change(Options, "decide", "self._completed[flat]", "info.everything"),
)


def from_memory() -> Any:
    """A failed sender has logged up to 7; its living receiver has completed 5, and persisted nothing."""
    available = Options(layout(*FIREWALL, 2))
    available.join(1, [Xi(0, (7,), ((7,),)), Xi(1, (7,), ((0,),))])
    here = [
        InMemory((9,), (7,), (), ((7,),)),
        InMemory((9,), (7,), ((7,),), ((0,),)),
        InMemory((5,), (5,), ((8,),), ((5,),)),
        InMemory((5,), (5,), ((5,),), ()),
    ]
    return available.decide({0: here})[0][2]


rule(
    "from memory",
    "a live stateful processor also offers its completed frontier from memory",
    from_memory,
    (5,),
    Change(Options, "decide", "held.upto", "self._low[flat]"),
)


def on_its_way() -> Any:
    return solve([PhysicalEdge(0, 1, SAME)], [Stateless((5,)), Live((3,), {0: (5,)}, (3,), (), ())])


rule(
    "surely held",
    "on an edge whose sender failed, D̄(e, f(src)) ⊆ f(dst) is read with C(d) in place of ⊤",
    on_its_way,
    [(3,), (3,)],
    Change(recovery.fixed_point.solve._Descent, "_spread", "held = processors[p].upto", "continue"),
)


def round_and_round() -> Any:
    """A stateless cycle of two that have completed a million iterations of epoch 3: each keeps no more than the other."""
    descent = recovery.fixed_point.solve._Descent(
        [PhysicalEdge(0, 1, Summary.feedback(2)), PhysicalEdge(1, 0, Summary.identity(2))],
        [Stateless((3, 10_000)), Stateless((3, 10_000))],
    )
    descent.run()
    return descent.bound, max(descent._lowered) < 100


rule(
    "cycles",
    "stateless cycles would descend once an iteration: contract them",
    round_and_round,
    ([(3, 0), (3, 0)], True),
    Change(recovery.fixed_point.solve._Descent, "_lower", "count >= 4", "False"),
)


def stayed() -> Any:
    available = Options(layout(*LINE, 1))
    available.cut(((LIVE, LIVE, LIVE, LIVE),))
    return available._completed[1]


rule(
    "live is not finished",
    "persisted ⊤ (`Finished`, for good) is not temporary ⊤ (`Live`)",
    stayed,
    (0,),
    Change(
        Options,
        "_cut_completed",
        "low if bound is None else max(low, bound)",
        "self.topology.info(flat).everything if bound is None else max(low, bound)",
    ),
)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()
