"""Rules of rollback whose loss a whole simulated job shows: with the rule the run is right, and without it, it is not.

Each rule names the runs that show its loss soonest. Where the simulator has come to
draw other events from a seed, the next seeds are tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest

import recovery.guarantees.repeating
import recovery.layout
import recovery.rollback.orders
import recovery.rollback.queues
from falkirk.simulate.faults import Rates
from monitor.coordination.coordinator import Coordinator
from monitor.coordination.options import Options
from monitor.coordination.topology import Topology
from recovery.agent.agent import Agent
from recovery.agent.completion import GroupInputs
from recovery.agent.reports import Reports
from recovery.agent.rounds import Rounds
from recovery.agent.state import AgentState
from recovery.checkpoint.applied import AppliedDecisions
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.processor_checkpoints import ProcessorCheckpoints
from recovery.checkpoint.saved_events import SavedEvents
from recovery.fixed_point.solve import _Descent
from recovery.layout import EdgeInfo
from recovery.memory.channels import Channels
from recovery.memory.kept_messages import Suppression
from recovery.memory.recorder import WorkerRecorder
from recovery.rollback.orders import RollbackPlanner
from recovery.rollback.queues import from_log, goes_again, owed
from tests.falkirk.simulate import divided
from tests.recovery.jobs import Faults, expected, simulated
from tests.support.mutation import GONE, Change, Instead, changed
from timely.data import representatives
from timely.data.sums.records import Unordered
from timely.operators.keyed import OrderedReduce
from timely.worker import restoring
from timely.worker.outbox import Outbox
from timely.worker.worker import Worker

FAULTS = {
    "kill": Faults(Rates(until=2.0, kill=0.008)),
    "io": Faults(Rates(until=2.0, kill_io=0.006)),
    "slow": Faults(Rates(until=3.0, kill=0.005), write_seconds=0.03),
    "monitor": Faults(Rates(until=2.0, kill=0.004, monitor=0.004)),
    "both": Faults(Rates(until=3.0, kill=0.004, monitor=0.004), write_seconds=0.02),
}

MORE = 40
"""Seeds that are tried beyond the ones that are named."""

Run = tuple[str, int, str, int]
"""A program, how many workers, which faults, the seed."""


@dataclass(frozen=True)
class Rule:
    """`says`: the rule, in short. `changes`: its loss."""

    says: str
    changes: tuple[Change | Instead, ...]


def rule(says: str, *changes: Change | Instead) -> Rule:
    return Rule(says, changes)


FRONTIERS = {
    "delivered": rule(
        "M̄: the greatest time delivered is in it",
        Change(WorkerRecorder, "delivered_bounds", "after(memory.delivered[port])", "memory.delivered[port]"),
    ),
    "sent": rule(
        "D̄: the greatest time sent is in it",
        Change(WorkerRecorder, "sent_bounds", "after(greatest)", "greatest"),
    ),
    "discarded": rule(
        "D̄(e, ⊤) of what is logged nowhere is not ∅",
        Change(WorkerRecorder, "sent_bounds", "not edge.logged and greatest", "False"),
    ),
    "inverse projection": rule(
        "the largest any-frontier: g ⊆ σ⁻¹(f(dst))",
        Change(_Descent, "_spread", "not within(self.bound[r], keep)", "False"),
    ),
    "projection": rule(
        "the largest any-frontier: g ⊆ φ(d)(f_n(src))",
        Change(_Descent, "_spread", "not within(self.bound[q], fixed)", "False"),
    ),
    "projection too large": rule(
        "over-estimating φ is not safe",
        Change(
            _Descent,
            "_spread",
            "bound if self._identity[index] else project(edge.summary, bound)",
            "(bound[0] + 1, *bound[1:])",
        ),
    ),
    "arrivals": rule(
        "f is complete when no input pointstamp in f can still be there",
        Change(
            GroupInputs,
            "__init__",
            "plan.arrivals[...].items()",
            "()",
        ),
    ),
    "exchange": rule(
        "an exchange is W×W physical edges",
        Change(Topology, "__init__", "range(self.workers) if edge.spread else (w,)", "(w,)"),
    ),
    "rebuilt monitor": rule(
        "a rebuilt monitor gives stateless processors every frontier ⊆ W",
        Change(
            Options,
            "__init__",
            "self._completed: list[Bound] = list(self._low)",
            "self._completed = [topology.info(flat).nothing for flat in flats]",
        ),
        Change(
            Options,
            "_cut_completed",
            "low if bound is None else max(low, prefix(bound))",
            "self.topology.info(flat).nothing if bound is None else bound",
        ),
    ),
    "W before it is durable": rule(
        "the monitor journals W before announcing it",
        Change(
            Coordinator,
            "_raise_watermarks",
            "self.commit.add(...)",
            "self.commit.add(KeptWatermarks(self.options.watermarks))\nself._announce(self.options.watermarks)",
        ),
    ),
    "ahead": rule(
        "what is sent into the future, beyond ↓σ, is not lost",
        Change(EdgeInfo, "logs", "self.ahead and time != event", GONE),
    ),
    "capabilities": rule(
        "S(p, f) holds the capabilities that were kept within f",
        Change(WorkerRecorder, "held_at", "not holds(bound, time)", "False"),
    ),
    "capabilities in the store": rule(
        "S(p, f) holds the capabilities that were kept within f, durably",
        Change(RollbackPlanner, "_restore", "checkpoint.held", "()"),
    ),
}

ROUNDS = {
    "decision before it is durable": rule(
        "make the decision durable before anyone restores",
        Change(
            Coordinator,
            "_decide",
            "self.commit.add(decision)",
            "self.commit.add(decision)\nself._decided(decision)",
        ),
    ),
    "everybody's F*": rule(
        "solve when F* of every processor is known",
        Change(Coordinator, "_decide", "not self.workers.are(Presence.ALIVE, Presence.JOINED)", GONE),
    ),
    "catching up": rule(
        "a new process notes the last decision before it takes part",
        Change(Coordinator, "_on_join", "behind and (not with_memory)", "False"),
    ),
    "applied": rule(
        "journal records carry the generation: a worker writes down that a decision was applied",
        Change(AppliedDecisions, "apply", "self.write_again(...)", GONE),
    ),
    "void checkpoints": rule(
        "snapshots that are not ⊆ a later decision are ignored",
        Change(
            ProcessorCheckpoints,
            "cut_to",
            "within(saved.bound, bound)",
            "True",
        ),
    ),
    "announced again": rule(
        "durable Ξ ⊆ f(p) are announced again",
        Change(Reports, "joining", "own.checkpoints.durable()", "()"),
    ),
    "Ξ before it is durable": rule(
        "Ξ is reported when it is durable",
        Change(Reports, "gather", "self.gathered.append(message)", "self._own.report(message)"),
    ),
    "resent within the source": rule(
        "a logged message is resent if τ ∈ f(src)",
        Instead(recovery.rollback.queues, "goes_again", lambda edge, source, *rest: goes_again(edge, None, *rest)),
        Change(Channels, "_undo", "[entry for entry in entries if holds(bound, entry.event)]", "entries"),
    ),
    "resent outside the target": rule(
        "a logged message is resent if t ∉ f(dst)",
        Instead(
            recovery.rollback.queues,
            "goes_again",
            lambda edge, source, *rest: from_log(edge, *rest) and owed(source, None, *rest[2:]),
        ),
    ),
    "resent at all": rule(
        "L(e, f): what is logged is resent",
        Change(
            RollbackPlanner,
            "_resend",
            "local.append(...)",
            GONE,
        ),
    ),
    "log order": rule(
        "log order stays",
        Change(recovery.rollback.orders, "wanted", "for entry in entries: ...", "reversed(entries)"),
    ),
    "log order in the store": rule(
        "log order stays",
        Change(SavedEvents, "sort", "entries.sort(key=lambda entry: entry.number)", "entries.reverse()"),
    ),
    "state": rule(
        "restore state",
        Change(
            RollbackPlanner, "_restore", "self._checkpoints.runs(p, bound, last=lowest, loaded=loaded)", "Runs.of(())"
        ),
    ),
    "increments": rule(
        "runs are shared: a checkpoint rests on those before it",
        Change(
            ProcessorCheckpoints,
            "chain",
            "within(since, saved.bound) and within(saved.bound, bound)",
            "saved.bound == bound",
        ),
    ),
    "nothing later": rule(
        "restore state: none of later times",
        Change(
            ProcessorCheckpoints,
            "chain",
            "within(since, saved.bound) and within(saved.bound, bound)",
            "since <= saved.bound",
        ),
    ),
    "memory": rule(
        "restore state: a living processor drops what lies outside",
        Change(restoring, "_restore", "state.keep(...)", GONE),
    ),
    "history": rule(
        "full histories come back by replay",
        Change(RollbackPlanner, "_restore", "info.history", "False"),
    ),
    "history within f": rule(
        "a history is replayed up to f(p), and no further",
        Change(
            WorkerRecorder,
            "restored",
            "holds(bound, event.time)",
            GONE,
        ),
        Change(
            RollbackPlanner,
            "_replay",
            "holds(bound, event.time) and (not holds(base, event.time))",
            "base <= event.time",
        ),
    ),
    "history in order": rule(
        "`LogHistory` records batches as delivered",
        Change(
            SavedEvents,
            "sort",
            "event.order",
            "-event.order",
        ),
    ),
    "history of notifications": rule(
        "`LogHistory` records every event",
        Change(WorkerRecorder, "notified", "processor in self.histories", "False"),
    ),
    "seed of a source": rule(
        "+1 a source's next epoch", Change(restoring, "rewind", "() if time is None else not_before(time)", "()")
    ),
    "seed of a source, late": rule(
        "+1 a source's next epoch",
        Change(
            restoring,
            "rewind",
            "worker._count(place, each, +1)",
            "worker._count(place, (each[0] + 1,), +1)",
        ),
    ),
    "seed of a capability": rule(
        "+1 a held capability",
        Change(restoring, "_restore", "worker.held.update(...)", GONE),
    ),
    "seed of local work": rule(
        "+1 a message to be resent, local ones too",
        Change(restoring, "_local_work", "worker.plan.workers == 1", "True"),
    ),
    "all seeds": rule(
        "no event is delivered until all seeds are in",
        Change(Worker, "run", "self.awaited", "False"),
        Change(AgentState, "running", "self.worker.awaited <= {AGENT}", GONE),
    ),
    "work after the report": rule(
        "a worker works when it has reported that it is restored",
        Change(AgentState, "run", "self.noted == self.worker.generation", GONE),
        Change(AgentState, "run", "Run(self.noted)", "Run(self.worker.generation)"),
        Change(
            Rounds, "decide", "own.effects.append(Rewind(...))", "own.effects.append(Rewind(orders.sources))\nown.run()"
        ),
    ),
    "frontiers wait for seeds": rule(
        "no frontier is computed until all seeds are in",
        Change(Agent, "_on_turn", "self.running", "self.phase is WorkerPhase.RUNNING"),
    ),
    "early frames": rule(
        "the first progress message of a generation is the whole seed: it is not lost",
        Change(Rounds, "on_frame", "self.early.append(...)", GONE),
    ),
}

GARBAGE = {
    "above W": rule(
        "collect S(p, f') for f' ⊂ W(p) only",
        Change(Checkpoints, "collect", "within(saved.bound, low)", "True"),
    ),
    "log above W": rule(
        "L(e, ·) goes within W(dst(e)) only",
        Change(SavedEvents, "collect_log", "[entry for entry in entries if not holds(low, entry.time)]", "[]"),
    ),
    "positions one epoch late": rule(
        "a source reports t only after t's end position is durable",
        Change(Checkpoints, "sources", "int(bound[0])", "int(bound[0]) + 1"),
    ),
    "positions of every partition": rule(
        "a source's position is durable for every partition",
        Change(Checkpoints, "_begin", "positions[p]", "positions[p][:1]"),
    ),
    "seek": rule(
        "a source reads again what lies outside f",
        Change(
            RollbackPlanner,
            "orders",
            "bound[0] if bound[0] < NEVER else None",
            "bound[0] + 1 if bound[0] < NEVER else None",
        ),
    ),
    "staged durably": rule(
        "an exactly-once sink stages t durably",
        Change(
            Checkpoints,
            "_begin",
            "keeps = state is not None",
            "keeps = state is not None and (not queue)",
        ),
    ),
}

SURVIVORS = {
    "kept in memory": rule(
        "what is sent to other workers is kept by its sender",
        Change(WorkerRecorder, "shipped", "keep(...)", GONE),
    ),
    "as good as logged": rule(
        "a receiver that goes back gets what a living sender keeps",
        Change(recovery.rollback.queues, "as_sent", "edge.kept and lives", "False"),
    ),
    "suppressed": rule(
        "what is done again is sent only where it is lacking",
        Change(Suppression, "has", "holds(self.bounds[worker][processor], time)", "False"),
    ),
    "suppressed is kept": rule(
        "what is done again is kept in any case",
        Change(
            Outbox,
            "take",
            "[self._message(worker, slot, number, batches, for_all) for slot, of_slot in waiting.items() "
            "for number, batches in enumerate(of_slot)]",
            "[self._message(worker, slot, number, batches, for_all) for slot, of_slot in waiting.items() "
            "if not (self._has and self._has(worker, slot[0], slot[2])) for number, batches in enumerate(of_slot)]",
        ),
    ),
    "not counted": rule(
        "what is suppressed is no message in flight",
        Change(Outbox, "add", "self._has is None or not self._has(worker, route.edge.index, time)", "True"),
    ),
    "undone": rule(
        "who goes back forgets what later events sent",
        Change(Channels, "_undo", "self.shipments.undo(edge.edge, bound)", GONE),
    ),
    "coverage begins at D̄": rule(
        "who came back from its store keeps nothing of before",
        Change(
            Channels,
            "_undo",
            "self.shipments.forget((edge.edge, receiver), image(edge.discarding, bound))",
            GONE,
        ),
    ),
    "coverage": rule(
        "D̄ of a living sender is what it does not keep",
        Change(
            WorkerRecorder, "kept_bounds", "self.shipments.coverage((e.edge, w))", "nothing(e.summary.result_depth)"
        ),
    ),
    "M̄ from the store": rule(
        "M̄ of a processor that came from its store is its bound",
        Change(WorkerRecorder, "restored", "min(time, last) if requests is None else last", "min(time, last)"),
    ),
    "cuts of one run": rule(
        "no cut leaves out where a survivor came back with all of its state as one run",
        Change(
            Coordinator,
            "_run",
            "self.options.beyond_cuts(self.decision.returned()) if self.decision is not None else ()",
            "()",
        ),
    ),
    "one run over rounds": rule(
        "a survivor that stays as it is still has what it came back with in the round before",
        Change(Coordinator, "_run", "self.decision.returned()", "self.decision.bounds"),
    ),
    "behind nondeterminism": rule(
        "behind a declared nondeterminism nobody is ahead",
        Instead(recovery.layout, "why_arbitrary", lambda node, operators: None),
        Instead(recovery.layout, "source_repeats", lambda source: True),
        Change(recovery.layout, "_repeating", "edge.spread and edge.target in declared", "False"),
    ),
}

EAGER = {
    "gates": rule(
        "what leaves an eager region waits until what made it is durable",
        Change(Worker, "_enqueue", "time >= self.gates[op]", "False"),
    ),
    "gates after a rollback": rule(
        "what waits in front of a gate, or comes from logs, waits there after a rollback too",
        Change(restoring, "_queue_all", "time >= worker.gates[op]", "False"),
    ),
    "gates of what is taken back": rule(
        "a gate is shut for what is taken back",
        Change(Rounds, "decide", "self._shut_gates(mine)", GONE),
    ),
    "outside at a gate": rule(
        "what waits in front of a gate is outstanding for those behind it",
        Change(Worker, "_stop_at_gate", "self._count(place, time, +1)", GONE),
        Change(Worker, "open", "self._count(place, item[3], -1)", GONE),
    ),
    "outputs of an eager region": rule(
        "who is fed by others may be taken back: its outputs wait for W",
        Change(recovery.layout, "_group", "not fed", "True"),
    ),
    "logged in front": rule(
        "cuts that each worker makes for itself need logs between them",
        Change(
            recovery.layout,
            "_logged",
            "target_policy.logs_inputs and target.region is not source.region",
            "False",
        ),
    ),
}

RULES = FRONTIERS | ROUNDS | GARBAGE | SURVIVORS | EAGER


RUNS: dict[str, Run] = {
    "delivered": ("logs", 2, "io", 472),
    "discarded": ("logs", 2, "slow", 806),
    "projection": ("ordered", 1, "monitor", 974),
    "arrivals": ("stateless", 1, "monitor", 648),
    "rebuilt monitor": ("rounds", 2, "monitor", 931),
    "decision before it is durable": ("tight", 1, "kill", 682),
    "applied": ("ordered", 1, "both", 5),
    "announced again": ("stateless", 2, "slow", 612),
    "resent within the source": ("logs", 2, "io", 714),
    "resent at all": ("ordered", 1, "io", 297),
    "log order in the store": ("ordered", 1, "kill", 925),
    "increments": ("tight", 1, "kill", 488),
    "memory": ("tight", 2, "monitor", 42),
    "history within f": ("ordered", 1, "io", 240),
    "history of notifications": ("ordered", 1, "slow", 837),
    "seed of a source, late": ("rounds", 1, "slow", 721),
    "all seeds": ("tight", 2, "kill", 881),
    "early frames": ("ordered", 3, "io", 603),
    "log above W": ("ordered", 2, "slow", 803),
    "positions of every partition": ("logs", 1, "both", 493),
    "staged durably": ("stateless", 1, "kill", 371),
    "inverse projection": ("stateless", 2, "monitor", 431),
    "projection too large": ("rounds", 2, "io", 580),
    "exchange": ("logs", 2, "monitor", 948),
    "W before it is durable": ("ordered", 1, "both", 151),
    "everybody's F*": ("logs", 1, "kill", 489),
    "Ξ before it is durable": ("rounds", 1, "kill", 775),
    "resent outside the target": ("ordered", 3, "kill", 181),
    "log order": ("ordered", 1, "slow", 799),
    "state": ("tight", 1, "both", 200),
    "nothing later": ("stateless", 1, "io", 549),
    "history": ("ordered", 1, "slow", 152),
    "history in order": ("ordered", 1, "io", 104),
    "seed of a source": ("logs", 1, "both", 480),
    "seed of local work": ("logs", 2, "slow", 824),
    "work after the report": ("tight", 2, "kill", 0),
    "frontiers wait for seeds": ("rounds", 3, "monitor", 426),
    "above W": ("ordered", 2, "both", 539),
    "positions one epoch late": ("ordered", 2, "kill", 699),
    "seek": ("rounds", 1, "slow", 612),
    "sent": ("logs", 2, "io", 578),
    "catching up": ("tight", 3, "kill", 709),
    "void checkpoints": ("ordered", 2, "monitor", 938),
    "ahead": ("ahead", 2, "kill", 0),
    "capabilities": ("holding", 2, "kill", 0),
    "capabilities in the store": ("holding", 2, "kill", 0),
    "seed of a capability": ("holding", 2, "kill", 0),
    "kept in memory": ("keeping", 2, "io", 328),
    "as good as logged": ("keeping", 2, "kill", 498),
    "suppressed": ("keeping", 2, "kill", 437),
    "suppressed is kept": ("keeping", 3, "slow", 487),
    "not counted": ("keeping", 2, "monitor", 968),
    "undone": ("keeping", 3, "monitor", 936),
    "coverage begins at D̄": ("logs", 3, "kill", 722),
    "coverage": ("keeping", 3, "both", 857),
    "M̄ from the store": ("ahead", 3, "slow", 357),
    "cuts of one run": ("holding", 2, "kill", 8),
    "one run over rounds": ("holding", 3, "both", 8),
    "behind nondeterminism": ("by_chance", 2, "kill", 158),
    "gates": ("eagerly", 2, "kill", 0),
    "gates after a rollback": ("eagerly", 2, "slow", 1),
    "gates of what is taken back": ("eagerly", 2, "kill", 0),
    "outside at a gate": ("eagerly", 2, "kill", 0),
    "outputs of an eager region": ("eagerly", 1, "kill", 0),
    "logged in front": ("entered", 3, "monitor", 0),
}
"""The program and the seeds that show the loss of each rule soonest."""


DEAR = {
    "M̄ from the store",
    "coverage begins at D̄",
    "sent",
    "catching up",
    "early frames",
    "nothing later",
    "rebuilt monitor",
    "discarded",
    "void checkpoints",
    "gates of what is taken back",
    "log above W",
    "gates after a rollback",
    "suppressed is kept",
    "frontiers wait for seeds",
}
"""Rules that long runs miss, or the last of several: of three quarters of the time of all."""


def wrong(run: Run) -> str | None:
    program, workers, faults, seed = run
    return simulated(program, workers, seed, FAULTS[faults])


def test_dear_rules_are_rules() -> None:
    assert RULES.keys() > DEAR


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.check] * (name in DEAR)) for name in RULES])
def test_without_the_rule_a_run_goes_wrong(name: str) -> None:
    broken = RULES[name]
    program, workers, faults, seed = RUNS[name]
    expected(program)  # with all rules
    for run in [(program, workers, faults, seed + more) for more in range(MORE)]:
        if changed(broken.changes, partial(wrong, run)) is not None and wrong(run) is None:
            return
    raise AssertionError(f"nobody missed the rule: {broken.says}")


DIVISIONS = {
    "obligations": rule(
        "what repeats over batches alone repeats only where it is given the same ones",
        Instead(recovery.layout, "divided", lambda graph, spreads, operators: {}),
    ),
    "pieces": rule(
        "logs, gates, queues and gathering sources merge the batches of a time",
        Change(recovery.guarantees.repeating, "_parted", "edge.source.node not in whole", "False"),
    ),
    "parted by exchanges": rule(
        "an exchange divides the batches of a time",
        Change(recovery.guarantees.repeating, "_parted", "spreads(edge)", "False"),
    ),
    "equal keys": rule(
        "one of equal keys represents a time, whichever comes first",
        Instead(representatives, "_content", lambda key: b""),
    ),
    "rounded sums": rule(
        "what is rounded at each step is added in an order of its own",
        Change(Unordered, "added", "by_content(list(self.others))", "self.others"),
    ),
    "reduced": rule(
        "values of a time are reduced in the order of their content",
        Change(OrderedReduce, "on_notify", "by_content(values)", "list(values)"),
    ),
}
DRAWN = {"obligations": 0, "pieces": 0, "parted by exchanges": 2, "equal keys": 1, "rounded sums": 3, "reduced": 4}
"""The drawn program that shows the loss of each rule soonest."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", DIVISIONS)
def test_without_the_rule_a_drawn_program_goes_wrong(name: str) -> None:
    broken = DIVISIONS[name]
    for seed in range(DRAWN[name], DRAWN[name] + 30):
        divided.program(seed)  # with all rules
        if changed(broken.changes, partial(divided.wrong, seed)) is not None and divided.wrong(seed) is None:
            return
    raise AssertionError(f"nobody missed the rule: {broken.says}")
