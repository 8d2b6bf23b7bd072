"""Options: what a processor may be rolled back to, and what a decision leaves of reports.

Each rule has a scenario made for it that comes out otherwise without the rule.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import monitor.coordination.handshake
import monitor.coordination.options
import recovery.fixed_point.solve
from monitor.coordination.options import Options
from recovery.errors import ReportError
from recovery.fixed_point.solve import LIVE
from recovery.metadata import Xi, everything
from recovery.protocol import (
    InMemory,
)
from tests.recovery.layouts import FIREWALL, LINE, layout
from tests.support.mutation import GONE, Change, Rules
from timely.time import Summary

RULES = Rules()
rule = RULES.add

SAME = Summary.identity(1)


def reports() -> list[str]:
    """Reports that no correct processor makes."""
    refused = []
    for second in ([Xi(0, (4,), ((2,),))], [Xi(0, (4,), ((4,),)), Xi(0, (5,), ((3,),))]):
        options = Options(layout("read source, out any", "read>out", 1))
        options.durable(0, 0, (3,), [Xi(0, (3,), ((6,),))])
        try:
            options.join(0, [Xi(0, (3,), ((6,),)), *second])
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
        "_follows",
        "all(map(within, less, discards))",
        "True",
    ),
)


def reported() -> Any:
    """All failed; the source has persisted 4 and 6, and the stateless processor behind it had reported 4."""
    options = Options(layout("read source, q any", "read>q", 1))
    options.complete(0, ((4,),))
    options.join(0, [Xi(0, (4,), ((4,),)), Xi(0, (6,), ((6,),))])
    return options.decide({})


rule(
    "reported",
    "F* of a stateless processor: every frontier ⊆ the completed frontier that it has reported",
    reported,
    (((4,), (4,)),),
    Change(Options, "decide", "self._completed[flat]", "info.everything"),
)


def from_memory() -> Any:
    """A failed sender has logged up to 7; its living receiver has completed 5, and persisted nothing."""
    options = Options(layout(*FIREWALL, 2))
    options.join(1, [Xi(0, (7,), ((7,),)), Xi(1, (7,), ((0,),))])
    here = [
        InMemory((9,), (7,), (), ((7,),)),
        InMemory((9,), (7,), ((7,),), ((0,),)),
        InMemory((5,), (5,), ((8,),), ((5,),)),
        InMemory((5,), (5,), ((5,),), ()),
    ]
    return options.decide({0: here})[0][2]


rule(
    "from memory",
    "a live stateful processor also offers its completed frontier from memory",
    from_memory,
    (5,),
    Change(Options, "decide", "held.upto", "self._low[flat]"),
)


def stayed() -> Any:
    options = Options(layout(*LINE, 1))
    options.cut(((LIVE, LIVE, LIVE, LIVE),))
    return options._completed[1]


rule(
    "live is not finished",
    "persisted ⊤ (`Finished`, for good) is not temporary ⊤ (`Live`)",
    stayed,
    (0,),
    Change(
        Options,
        "_cut_completed",
        "low if bound is None else max(low, prefix(bound))",
        "self.topology.info(flat).everything if bound is None else max(low, prefix(bound))",
    ),
)


def sent_anew() -> Any:
    """A source and a map of worker 0 have failed, with the count behind them; worker 1 lives, and has completed up to 7."""
    plan = layout("read source, map any, count chain", "read>map, map=>count", 2)
    anew = tuple(msgspec.structs.replace(info, anew=info.name != "count") for info in plan.processors)
    options = Options(msgspec.structs.replace(plan, processors=anew))
    options.join(0, [Xi(p, (at,), ((at,),) if p == 0 else ()) for p in (0, 2) for at in (3, 4)])
    options.complete(0, ((4,),))
    here = [
        InMemory((9,), (7,), (), ((7,),)),
        InMemory((7,), (7,), ((7,),), ((0,),)),
        InMemory((7,), (6,), ((8,),), ()),
    ]
    ended = [here[0], here[1], InMemory(everything(1), (6,), ((8,),), ())]
    of = [options.decide({1: memory}) for memory in (here, ended)]
    return [options.current_epoch({1: memory}) for memory in (here, ended)], *of


rule(
    "sent anew",
    "AtLeastOnce re-sends at the current epoch: the old one may be notified downstream",
    sent_anew,
    ([7, 0], (((4,), (4,), (4,)), (LIVE, LIVE, LIVE)), (((4,), (4,), (4,)), (LIVE, LIVE, (4,)))),
    Change(Options, "current_epoch", "max(epoch, _first_after(held.upto), _first_after(held.notified))", "epoch"),
    Change(Options, "current_epoch", "epoch if epoch < FINITE else 0", "epoch"),
    Change(Options, "decide", "self.current_epoch(memory, failed)", "False"),
)


def came_back() -> Any:
    """The receiver lives, but has its memory from its checkpoint at 5 on; the sender has failed, and has 2 and 4."""
    options = Options(layout("a chain, b chain", "a=>b", 2))
    saved = [Xi(0, (2,), ((2,),)), Xi(0, (4,), ((4,),))]
    options.join(1, [*saved, *(Xi(1, (epoch,), ()) for epoch in (2, 4))])
    options.join(0, [*saved, Xi(0, (5,), ((5,),)), Xi(1, (2,), ()), Xi(1, (5,), ())])
    here = [
        InMemory((6,), (6,), (), ((6,),), since=(1,)),
        InMemory((6,), (6,), ((6,), (6,)), (), since=(5,)),
    ]
    return options.decide({0: here})


def came_back_in_a_loop() -> Any:
    """The same, of two coordinates: memory from (5, 0) on serves no bound before it, be the iteration 0 or not."""
    options = Options(layout("a chain2, b chain2", "a=>b", 2))
    saved = [Xi(0, (2, 0), ((2, 0),)), Xi(0, (4, 0), ((4, 0),))]
    options.join(1, [*saved, *(Xi(1, (epoch, 0), ()) for epoch in (2, 4))])
    options.join(0, [*saved, Xi(0, (5, 0), ((5, 0),)), Xi(1, (2, 0), ()), Xi(1, (5, 0), ())])
    here = [
        InMemory((6, 0), (6, 0), (), ((6, 0),), since=(1, 0)),
        InMemory((6, 0), (6, 0), ((6, 0), (6, 0)), (), since=(5, 0)),
    ]
    return options.decide({0: here})


def came_back_without_keeping() -> Any:
    """An operator that keeps nothing needs no checkpoint: alive, it goes to any bound that it has completed."""
    options = Options(layout("a chain, q any", "a=>q", 2))
    for worker in (0, 1):
        options.join(worker, [Xi(0, (epoch,), ((epoch,),)) for epoch in (2, 4)])
    here = [InMemory((6,), (6,), (), ((6,),), since=(1,)), InMemory((6,), (6,), ((6,), (6,)), (), since=(5,))]
    options.complete(1, ((4,),))
    return options.decide({0: here})


BACK = "a live stateful processor offers its memory: what came back from its store, only from there on"
for _name, _scenario, _right, _change in (
    (
        "came back from the store, in a loop",
        came_back_in_a_loop,
        (((2, 0), (2, 0)), ((2, 0), (2, 0))),
        Change(Options, "_between", "any(bound)", "all(bound)"),
    ),
    (
        "came back and keeps nothing",
        came_back_without_keeping,
        (((4,), (4,)), ((4,), (4,))),
        Change(Options, "_between", "self.topology.info(flat).chain", GONE),
    ),
):
    rule(_name, BACK, _scenario, _right, _change)
rule(
    "came back from the store",
    "a live stateful processor offers its memory: what came back from its store, only from there on",
    came_back,
    (((2,), (2,)), ((2,), (2,))),
    Change(Options, "decide", "self._between(...)", "False"),
)


def after_a_decision() -> Any:
    """Checkpoints at 3 and 5, all completed up to 8; the decision: a to 3, b and q stay, c to 5."""
    options = Options(layout("a source, q any, b chain, c chain", "a|q, q|b, b|c", 1))
    options.complete(0, ((8,), (8,), (8,), (8,)))
    for group, p in ((0, 0), (2, 2), (3, 3)):
        for epoch in (3, 5):
            discards = () if p == 3 else ((0,),)
            options.durable(0, group, (epoch,), [Xi(p, (epoch,), discards)])
    options.raise_watermarks()
    options = Options(options.layout)  # W is what it was at the start
    for group, p in ((0, 0), (2, 2), (3, 3)):
        for epoch in (3, 5):
            options.durable(0, group, (epoch,), [Xi(p, (epoch,), () if p == 3 else ((0,),))])
    options.complete(0, ((8,), (8,), (8,), (8,)))
    options.cut((((3,), LIVE, LIVE, (4,)),))
    known = [[option[0][0] for option in chain] for chain in options.chains]
    minimum = options.minimum()
    options.raise_watermarks()
    low = options.watermarks[0]
    options.complete(0, ((4,), (4,), (4,), (4,)))
    options.raise_watermarks()
    return known, minimum, low, options.watermarks[0]


CUT = "after a decision F*' = {f' ⊆ f(p)}: what lies outside belongs to a history that is no more"
for _name, _change in {
    "checkpoints outside a decision": Change(Options, "cut", "within(option[0], bound)", GONE),
    "checkpoints of what stayed": Change(Options, "cut", "bound is not None", "(bound := (bound or (3,)))"),
    "epochs of an old generation": Change(Options, "cut", "self.upto = [None] * self.layout.workers", GONE),
    "completed in an old history": Change(Options, "cut", "self._cut_completed(...)", GONE),
}.items():
    rule(
        _name,
        CUT,
        after_a_decision,
        ([[3], [], [3, 5], [3]], [(0,)] * 4, ((3,), (0,), (0,), (0,)), ((3,), (3,), (3,), (3,))),
        _change,
    )


def solved_before() -> Any:
    """W was being kept up to date when a decision made void what it may rise to next."""
    options = Options(layout("a source, b chain", "a|b", 1))
    options.durable(0, 0, (5,), [Xi(0, (5,), ((0,),))])
    options.durable(0, 1, (3,), [Xi(1, (3,), ())])
    options.raise_watermarks()
    options.durable(0, 1, (7,), [Xi(1, (7,), ())])
    options.raise_watermarks()
    options.cut((((5,), (3,)),))
    options.durable(0, 0, (9,), [Xi(0, (9,), ((0,),))])
    options.raise_watermarks()
    return options.watermarks


rule(
    "W after a decision",
    CUT,
    solved_before,
    (((9,), (3,)),),
    Change(Options, "cut", "self._solver = self._memory_solver = None", GONE),
)


def told_twice() -> Any:
    """Two checkpoints of one processor at one bound, with different D̄: which of them is the right one?"""
    options = Options(layout("a source, b chain", "a>b", 1))
    try:
        options.join(0, [Xi(0, (3,), ((3,),)), Xi(0, (3,), ((4,),))])
    except ReportError:
        return "refused"
    return "believed"


rule(
    "told twice",
    "Ξ(p, f) is one: reject a report that is not",
    told_twice,
    "refused",
    Change(monitor.coordination.options, "_follows", "bound != before", GONE),
)


def idle() -> Any:
    """All that is persisted reaches 5; what keeps nothing, and has nothing to do, stands in between."""
    options = Options(layout("a chain, q any, b chain", "a|q, q|b", 1))
    for group, p in ((0, 0), (2, 2)):
        options.durable(0, group, (5,), [Xi(p, (5,), ((0,),) if p == 0 else ())])
    options.complete(0, ((6,), (6,), (6,)))
    options.raise_watermarks()
    return options.watermarks


IDLE = "idle processors report completed frontiers too (one aggregate a worker), or W stalls"
rule(
    "idle processors",
    IDLE,
    idle,
    (((5,), (5,), (5,)),),
    Change(Options, "complete", "not info.chain", "False"),
)


def survivors() -> Any:
    """Worker 0 has failed, and comes back at 3; worker 1 has completed 6. It keeps all that it sent, so who reads
    stays as it is; or only what came late."""
    found: list[Any] = []
    for kept in ((0,), (5,)):
        options = Options(layout("read source, count chain", "read=>count", 2, kept=True))
        for worker in range(2):
            options.durable(worker, 0, (3,), [Xi(0, (3,), ((3,),)), Xi(1, (3,), ())])
        here = [InMemory((6,), (6,), (), ((7,),), kept=((kept, (0,)),)), InMemory((6,), (6,), ((7,),), ())]
        decided = options.decide({1: here})
        found += [decided[1], options.held(decided, ())[1]]
        found.append(options.held(((LIVE, LIVE), (LIVE, LIVE)), options.held(decided, ()))[1])
    options = Options(layout("read source, count chain", "read=>count", 2, kept=True))
    refused = 0
    for wrong in ((), (((0,),),), (((0,), (0, 0)),)):
        try:
            options.memory(0, [InMemory((0,), (0,), (), ((0,),), kept=wrong), InMemory((0,), (0,), ((0,),), ())])
        except ReportError:
            refused += 1
    return [*found, refused]


SPARED = [(LIVE, (6,)), *[((0,), (6,))] * 2, *[((3,), (3,))] * 3, 3]
for _name, _change in (
    (
        "kept messages count",
        Change(Options, "decide", "held.kept[place][to]", "(9,)"),
    ),
    (
        "what is done again is the same",
        Change(Options, "decide", "not memory or self.topology.repeats is None", "True"),
    ),
    ("bounds of suppression stay", Change(Options, "held", "before or nothing_held", "nothing_held")),
):
    rule(_name, "survivors keep what they have", survivors, SPARED, _change)


def fallen() -> Any:
    """Worker 1 has failed. What it read comes again from 5 on: so `join` of worker 0 forgets epoch 5, also what `kept` has sent
    it there, which lives on the same worker and has none of it any more."""
    options = Options(layout("kept chain, join chain, read source", "kept>join, read=>join", 2))
    for worker in range(2):
        options.durable(worker, 0, (5,), [Xi(0, (5,), ((5,),)), Xi(1, (5,), ()), Xi(2, (5,), ((5,),))])
    here = [
        InMemory((5,), (5,), (), ((6,),)),
        InMemory((5,), (5,), ((6,), (6,)), ()),
        InMemory((5,), (5,), (), ((5,),)),
    ]
    return options.decide({0: here})


rule(
    "fallen, and its senders",
    "a survivor that goes back takes back who sent it more than it keeps",
    fallen,
    (((5,), (5,), LIVE), ((5,), (5,), (5,))),
    Change(recovery.fixed_point.solve._Descent, "_fall", "self._wake(p)", GONE),
)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()
