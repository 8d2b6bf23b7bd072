"""Rules of rollback whose loss a whole simulated job shows: with the rule the run is right, and without it, it is not.

`test_rules.py` has the table of all rules. Each rule names the runs that show its loss soonest. Where the simulator has come to
draw other events from a seed, the next seeds are tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from falkirk.simulate.faults import Faults
from monitor.available import Available
from monitor.coordinator import Coordinator
from monitor.topology import Topology
from monitor.watermarks import LowWatermarks
from recovery.agent import Agent
from recovery.checkpoints import Checkpoints
from recovery.fixed_point.solve import _Descent
from recovery.recorder import WorkerRecorder
from tests.recovery.rules_support import Change, changed, simulated
from timely import rewind
from timely.worker import Worker

FAULTS = {
    "kill": Faults(until=2.0, kill_worker=0.008),
    "io": Faults(until=2.0, kill_at_io=0.006),
    "slow": Faults(until=3.0, kill_worker=0.005, write_seconds=0.03),
    "monitor": Faults(until=2.0, kill_worker=0.004, kill_monitor=0.004),
    "both": Faults(until=3.0, kill_worker=0.004, kill_monitor=0.004, write_seconds=0.02),
}

MORE = 40
"""Seeds that are tried beyond the ones that are named."""

Run = tuple[str, int, str, int]
"""A program, how many workers, which faults, the seed."""

TIGHT: Run = ("tight", 1, "both", 26)
TIGHT_2: Run = ("tight", 2, "both", 679)
TIGHT_3: Run = ("tight", 3, "both", 340)
LOGS: Run = ("logs", 3, "kill", 867)
LOGS_2: Run = ("logs", 2, "slow", 526)
LOGS_3: Run = ("logs", 3, "kill", 232)
LOGS_4: Run = ("logs", 3, "both", 942)
PLAIN: Run = ("stateless", 1, "both", 426)
LOOP: Run = ("rounds", 1, "io", 353)
LOOP_2: Run = ("rounds", 1, "slow", 923)
ORDER: Run = ("ordered", 1, "monitor", 779)
ORDER_2: Run = ("ordered", 1, "slow", 190)
ORDER_3: Run = ("ordered", 3, "kill", 623)
AHEAD: Run = ("ahead", 1, "slow", 315)


@dataclass(frozen=True)
class Rule:
    """`says`: the rule, in short. `runs`: where its loss is seen soonest. `changes`: its loss."""

    says: str
    runs: tuple[Run, ...]
    changes: tuple[Change, ...]


def rule(says: str, runs: tuple[Run, ...], *changes: Change) -> Rule:
    return Rule(says, runs, changes)


FRONTIERS = {
    "delivered": rule(
        "M̄: the greatest time delivered is in it",
        (LOGS, LOGS_3),
        Change(WorkerRecorder, "delivered_bounds", "after(memory.delivered[port])", "memory.delivered[port]"),
    ),
    "sent": rule(
        "D̄: the greatest time sent is in it",
        (LOGS_3, LOGS),
        Change(WorkerRecorder, "sent_bounds", "after(greatest)", "greatest"),
    ),
    "discarded": rule(
        "D̄(e, ⊤) of what is logged nowhere is not ∅",
        (LOGS, LOGS_3),
        Change(WorkerRecorder, "sent_bounds", "if not edge.logged and greatest else", "if False else"),
    ),
    "inverse projection": rule(
        "the largest any-frontier: g ⊆ σ⁻¹(f(dst))",
        (LOOP_2, LOGS),
        Change(_Descent, "_spread", "if keep < self.bound[r]:", "if False:"),
    ),
    "projection": rule(
        "the largest any-frontier: g ⊆ φ(d)(f_n(src))",
        (TIGHT, PLAIN),
        Change(_Descent, "_spread", "if fixed < self.bound[q]:", "if False:"),
    ),
    "projection too large": rule(
        "over-estimating φ is not safe",
        (LOGS, ORDER),
        Change(
            _Descent,
            "_spread",
            "fixed = bound if self._identity[index] else project(edge.summary, bound)",
            "fixed = (bound[0] + 1, *bound[1:])",
        ),
    ),
    "arrivals": rule(
        "f is complete when no input pointstamp in f can still be there",
        (PLAIN, ORDER, ORDER_2),
        Change(
            Agent, "_places_of", "places.update(self._plan.arrivals[processor.nodes[0].index])", "pass"
        ),
    ),
    "exchange": rule(
        "an exchange is W×W physical edges",
        (LOGS, TIGHT_3),
        Change(Topology, "__init__", "for v in range(self.workers) if edge.spread else (w,):", "for v in (w,):"),
    ),
    "rebuilt monitor": rule(
        "a rebuilt monitor gives stateless processors every frontier ⊆ W",
        (TIGHT, LOGS_2),
        Change(
            Available,
            "__init__",
            "self._completed: list[Bound] = list(self._low)",
            "self._completed = [topology.info(flat).nothing for flat in flats]",
        ),
        Change(
            Available,
            "_cut_completed",
            "low if bound is None else max(low, bound)",
            "self.topology.info(flat).nothing if bound is None else bound",
        ),
    ),
    "W before it is durable": rule(
        "the monitor journals W before announcing it",
        (TIGHT_2,),
        Change(
            LowWatermarks,
            "update",
            "self._commit.add(KeptWatermarks(risen), lambda: self._stored(risen))",
            "self._commit.add(KeptWatermarks(risen)); self._stored(risen)",
        ),
    ),
}

ROUNDS = {
    "decision before it is durable": rule(
        "make the decision durable before anyone restores",
        (TIGHT_2, LOGS_4),
        Change(
            Coordinator,
            "_decide",
            "self._commit.add(decision, lambda: self._decided(decision))",
            "self._commit.add(decision); self._decided(decision)",
        ),
    ),
    "everybody's F*": rule(
        "solve when F* of every processor is known",
        (TIGHT, LOGS),
        Change(Coordinator, "_decide", "or not self.seats.are(Presence.ALIVE, Presence.JOINED)", ""),
    ),
    "behind": rule(
        "every live processor first applies the decision that it has not heard of",
        (TIGHT_3, LOGS_4),
        Change(Coordinator, "_on_join", "self._decide_for(seat)", "pass"),
        Change(
            Coordinator, "_on_join", "available.cut_worker(seat.worker, self.decision.bounds[seat.worker])", "pass"
        ),
    ),
    "catching up": rule(
        "a new process notes the last decision before it takes part",
        (LOGS_4, TIGHT_3),
        Change(Coordinator, "_on_join", "if behind and not with_memory:", "if False:"),
    ),
    "applied": rule(
        "journal records carry the generation: a worker writes down that a decision was applied",
        (LOGS, ORDER_3),
        Change(Checkpoints, "apply", "self._add(applied)", "pass"),
    ),
    "void checkpoints": rule(
        "snapshots that are not ⊆ a later decision are ignored",
        (ORDER_3, PLAIN),
        Change(
            Checkpoints,
            "_cut_to",
            "while history.saved and history.saved[-1].bound > bound:",
            "while False:",
        ),
    ),
    "announced again": rule(
        "durable Ξ ⊆ f(p) are announced again",
        (TIGHT, LOOP),
        Change(Agent, "join", "self._durable()", "()"),
    ),
    "Ξ before it is durable": rule(
        "Ξ is reported when it is durable",
        (LOOP, PLAIN, LOGS_2),
        Change(Agent, "save", "self._waiting.append(", "self.messages.append("),
    ),
    "resent within the source": rule(
        "a logged message is resent if τ ∈ f(src)",
        (LOGS, ORDER),
        Change(Agent, "_resend", "(source is not None and entry.event >= source) or", ""),
        Change(
            WorkerRecorder, "restored", "[entry for entry in entries if entry.event < bound]", "entries"
        ),
    ),
    "resent outside the target": rule(
        "a logged message is resent if t ∉ f(dst)",
        (PLAIN, ORDER_2),
        Change(Agent, "_resend", "or (target is not None and entry.time < target)", ""),
    ),
    "resent at all": rule(
        "L(e, f): what is logged is resent",
        (ORDER, PLAIN),
        Change(
            Agent,
            "_resend",
            "local.append(rewind.Resent(index, entry.event, entry.time, entry.content()))",
            "pass",
        ),
    ),
    "log order": rule(
        "log order stays",
        (ORDER, ORDER_3),
        Change(Agent, "_resend", "for entry in entries:", "for entry in reversed(entries):"),
    ),
    "log order in the store": rule(
        "log order stays",
        (ORDER, ORDER_3),
        Change(Checkpoints, "load", "entries.sort(key=lambda entry: entry.number)", "entries.reverse()"),
    ),
    "state": rule(
        "restore state", (TIGHT, LOOP), Change(Agent, "_restore", "runs = tuple(self.checkpoints.runs(p, bound))", "runs = ()")
    ),
    "increments": rule(
        "runs are shared: a checkpoint rests on those before it",
        (ORDER_2, LOGS_2, TIGHT),
        Change(Checkpoints, "runs", "for saved in upto[first:]", "for saved in upto[-1:]"),
    ),
    "nothing later": rule(
        "restore state: none of later times",
        (TIGHT, LOOP),
        Change(Checkpoints, "runs", "for saved in upto[first:]", "for saved in history.saved"),
    ),
    "memory": rule(
        "restore state: a living processor drops what lies outside",
        (LOGS, TIGHT_3),
        Change(rewind, "_restore", "state.keep(restored.frontier)", "pass"),
    ),
    "history": rule(
        "full histories come back by replay",
        (ORDER, ORDER_2),
        Change(Agent, "_restore", "if info.history:", "if False:"),
    ),
    "history within f": rule(
        "a history is replayed up to f(p), and no further",
        (ORDER, ORDER_2),
        Change(
            WorkerRecorder,
            "restored",
            "event for event in self.histories[processor] if event.time < bound",
            "event for event in self.histories[processor]",
        ),
    ),
    "history in order": rule(
        "`LogHistory` records batches as delivered",
        (ORDER, ORDER_3),
        Change(
            Checkpoints, "load", "events.sort(key=lambda event: event.order)", "events.sort(key=lambda event: -event.order)"
        ),
    ),
    "history of notifications": rule(
        "`LogHistory` records every event",
        (ORDER, ORDER_2),
        Change(WorkerRecorder, "notified", "if processor in self.histories:", "if False:"),
    ),
    "seed of a source": rule(
        "+1 a source's next epoch", (LOGS, PLAIN), Change(rewind, "rewind", "if time is not None:", "if False:")
    ),
    "seed of a source, late": rule(
        "+1 a source's next epoch",
        (PLAIN, LOGS),
        Change(rewind, "rewind", "worker._count(place, time, +1)\n    local", "worker._count(place, (time[0] + 1,), +1)\n    local"),
    ),
    "seed of local work": rule(
        "+1 a message to be resent, local ones too",
        (LOGS_2, LOGS_3),
        Change(rewind, "_local_work", "if worker.plan.workers == 1:", "if True:"),
    ),
    "all seeds": rule(
        "no event is delivered until all seeds are in",
        (LOGS, ORDER_3),
        Change(Worker, "run", "if self.awaited:", "if False:"),
        Change(Agent, "running", "and not self.worker.awaited", ""),
    ),
    "frontiers wait for seeds": rule(
        "no frontier is computed until all seeds are in",
        (LOGS, ORDER_3),
        Change(Agent, "turn", "and not self.worker.awaited", ""),
    ),
    "early frames": rule(
        "the first progress message of a generation is the whole seed: it is not lost",
        (LOGS_4, LOGS),
        Change(Agent, "receive", "self._early.append(frame)", "pass"),
    ),
}

GARBAGE = {
    "above W": rule(
        "collect S(p, f') for f' ⊂ W(p) only",
        (LOOP, PLAIN),
        Change(Checkpoints, "collect", "saved.bound <= low", "True"),
    ),
    "history within W": rule(
        "`LogHistory`'s events inside W are its state",
        (ORDER, ORDER_2, ORDER_3),
        Change(
            WorkerRecorder,
            "collect",
            "memory = self._of[processor]",
            "memory = self._of[processor]\n    if processor in self.histories:\n"
            "        self.histories[processor] = [e for e in self.histories[processor] if e.time >= bound]",
        ),
    ),
    "log above W": rule(
        "L(e, ·) goes within W(dst(e)) only",
        (ORDER, PLAIN, LOGS_2),
        Change(Checkpoints, "collect_log", "[entry for entry in entries if entry.time >= low]", "[]"),
    ),
    "positions one epoch late": rule(
        "a source reports t only after t's end position is durable",
        (TIGHT, LOOP, PLAIN),
        Change(Checkpoints, "_begin", "positions(p, int(bound[0]))", "positions(p, int(bound[0]) + 1)"),
    ),
    "positions of every partition": rule(
        "a source's position is durable for every partition",
        (TIGHT, LOOP, PLAIN),
        Change(Checkpoints, "_begin", "positions(p, int(bound[0]))", "positions(p, int(bound[0]))[:1]"),
    ),
    "seek": rule(
        "a source reads again what lies outside f",
        (TIGHT, LOOP, PLAIN),
        Change(Agent, "_orders", "self.rewound[node.index] = (bound[0] if", "self.rewound[node.index] = (bound[0] + 1 if"),
    ),
    "staged durably": rule(
        "an exactly-once sink stages t durably",
        (TIGHT, LOOP, PLAIN, TIGHT_2),
        Change(
            Checkpoints,
            "_begin",
            "keeps = state is not None and not info.history",
            "keeps = state is not None and not info.history and not queue",
        ),
    ),
}

RULES = FRONTIERS | ROUNDS | GARBAGE


def wrong(run: Run) -> str | None:
    program, workers, faults, seed = run
    return simulated(program, workers, seed, FAULTS[faults])


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_a_run_goes_wrong(name: str) -> None:
    broken = RULES[name]
    program, workers, faults, _ = broken.runs[0]
    more = [(program, workers, faults, seed) for seed in range(MORE)]
    for run in (*broken.runs, *more):
        if changed(broken.changes, lambda run=run: wrong(run)) is not None and wrong(run) is None:
            return
    raise AssertionError(f"nobody missed the rule: {broken.says}")
