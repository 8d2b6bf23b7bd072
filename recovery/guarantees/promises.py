"""Promises for outputs under failures: grade, causes and remedies.

Two faults can arise on the way to an output. A stream is *broken* if some of it is lost, or mixed from parts of two
executions; then no output behind it is right. It is *unsteady* if a time may bring other records when it is redone.
That does not harm an exactly-once output, which publishes nothing of a time before that is safe; an at-least-once
output publishes both.

Assumptions: stores keep what they have acknowledged, and the functions of a program behave as their operators
declare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import reduce

import msgspec
from msgspec.structs import asdict
from msgspec.structs import replace as replace_struct

from recovery.guarantees.classes import (
    OperatorClass,
    Operators,
    class_of,
    gives_each_once,
    keeps_keys,
    keeps_state,
    operators_of,
    why_arbitrary,
)
from recovery.guarantees.repeating import Divided, between_workers, divided
from recovery.policy.chosen import as_policy
from recovery.policy.traits import Saves
from timely.dataflow.graph import Edge, Graph, Node
from timely.io.interface import source_repeats
from timely.operators.channels import PIPELINE, Channel, Exchange


class Grade(IntEnum):
    """Worst effect of failures on an output; a greater one promises more.

    Section 3.1 of Hwang and others.
    """

    GAP = 0
    """Records may be missing."""
    DIVERGENT = 1
    """Nothing is missing, but executions may be mixed, and no rule tells them apart."""
    CONVERGENT = 2
    """Repeats may differ, but in the end records count once, or last values are right."""
    REPEATING = 3
    """Repeats are of records seen before, in the same epoch or, if AtLeastOnce, later."""
    PRECISE = 4
    """Output of an execution without failures."""

    def __str__(self) -> str:
        return self.name.lower()


class Alike(IntEnum):
    """Likeness of two executions, at one place of the program."""

    NOT = 0
    LATEST = 1
    """The last value of each key is the same in the end."""
    RECORDS = 2
    """All records together are the same, in whatever epochs."""
    EPOCHS = 3
    """The records of each epoch are the same."""


class Cause(msgspec.Struct, frozen=True, order=True):
    """Reason for a promise of no more than `grade`: an operator and a remedy."""

    grade: Grade
    name: str
    kind: str
    site: str
    reason: str
    mend: str
    declared: bool = False
    """True if failures name the incomplete times: see `recovery.incomplete`."""
    pair: bool = False
    """True if it takes the failure of a worker together with its mate."""


class Promise(msgspec.Struct, frozen=True):
    """Promise of one output.

    `causes`: the weightiest first; none where it is precise.
    """

    output: str
    kind: str
    site: str
    one: Grade
    """Grade if any one process of the job fails."""
    any: Grade
    """Grade under any number of failures, of all processes at once too.

    The failure of the process that runs the job counts too.
    """
    alike: Alike
    """Likeness of two runs without failures."""
    causes: tuple[Cause, ...] = ()
    again: Alike = Alike.EPOCHS
    """Likeness of seen output under failures to a run without, duplicates apart."""
    besides: Grade = Grade.PRECISE
    """Grade of all times not declared incomplete, if any one process fails."""


def as_plain(promise: Promise) -> dict[str, object]:
    """Promise as JSON, with grades by name."""
    causes = [{**asdict(cause), "grade": str(cause.grade)} for cause in promise.causes]
    named = {"one": str(promise.one), "any": str(promise.any), "alike": promise.alike.name.lower(), "causes": causes}
    named["again"] = promise.again.name.lower()
    named["besides"] = str(promise.besides)
    return {**asdict(promise), **named}


_SAME_EPOCHS = "end epochs by what is in the data, or by counts, and say repeats = True"
_EXACT = "write to a sink that is exactly once (FileSink, SqliteSink)"


@dataclass(frozen=True, slots=True)
class _State:
    """Properties of the streams into or out of a place.

    `lost`: whom to blame for what is declared missing, and `lacking` what keeps state behind that, and counts without it.
    `again`: how far what is done again is what was done before. `unsteady`: whom to blame if it is not the same. `firm`: it has
    come through regions only whose policy is. `twice`: whom to blame that some comes a second time, in a later epoch; then what
    is seen is as far as `seen` like a run without failures. `doubled`: what comes a second time is still there twice.
    """

    alike: Alike = Alike.EPOCHS
    again: Alike = Alike.EPOCHS
    unsteady: Cause | None = None
    broken: Cause | None = None
    firm: bool = True
    twice: Cause | None = None
    seen: Alike = Alike.EPOCHS
    doubled: bool = False
    lost: Cause | None = None
    lacking: Cause | None = None

    def meet(self, other: _State) -> _State:
        """Properties of two merged streams."""
        again = min(self.again, other.again)
        blamed = [state.unsteady for state in (self, other) if state.again == again and state.unsteady is not None]
        return _State(
            *(min(self.alike, other.alike), again, min(blamed, default=None), _weightier(self.broken, other.broken)),
            firm=self.firm and other.firm,
            twice=_weightier(self.twice, other.twice),
            seen=min(self.seen, other.seen),
            doubled=self.doubled or other.doubled,
            lost=_weightier(self.lost, other.lost),
            lacking=_weightier(self.lacking, other.lacking),
        )


@dataclass(frozen=True, slots=True)
class _Program:
    """Program's operators, and its nodes with batches possibly divided otherwise.

    Both are by index.
    """

    operators: Operators
    divided: Mapping[int, Divided]
    losing: Mapping[int, str]
    """Why something of a node is lost with its worker, and declared."""


def promises(graph: Graph, operators: Operators | None = None) -> tuple[Promise, ...]:
    """Promise of each output of a program, in the order in which they were made.

    It holds for every number of workers. `operators` are those of the graph, if they were made already.
    """
    made = operators_of(graph) if operators is None else operators
    states, incoming, outgoing = [_State()] * len(graph.nodes), graph.incoming(), graph.outgoing()
    program = _Program(made, divided(graph, between_workers, made), dict(_losing(graph, outgoing, made)))
    todo = [node.index for node in graph.nodes][::-1]
    waiting = set(todo)
    while todo:
        index = todo.pop()
        waiting.discard(index)
        node = graph.nodes[index]
        state = _leaving(node, _reaching(node, states, incoming[index]), program)
        if state != states[index]:
            states[index] = state
            behind = [edge.target.node for edge in outgoing[index] if edge.target.node not in waiting]
            waiting.update(behind)
            todo += behind
    return tuple(_promise(node, states[node.index]) for node in graph.nodes if node.sink or node.kind == "capture")


def _losing(graph: Graph, outgoing: Sequence[Sequence[Edge]], operators: Operators) -> Iterator[tuple[int, str]]:
    """Nodes with declared losses, and their reasons."""
    for node in graph.nodes:
        if not as_policy(node.policy).gap:
            continue
        if keeps_state(node, operators):
            yield node.index, "what it keeps is lost with its worker, and it goes on empty"
        elif any(not as_policy(graph.nodes[edge.target.node].policy).gap for edge in outgoing[node.index]):
            yield node.index, "what it had sent is not made again when its worker dies"


def _reaching(node: Node, states: list[_State], edges: Sequence[Edge]) -> _State:
    """Properties of all streams into a node, merged."""
    met = reduce(_State.meet, (states[edge.source.node] for edge in edges), _State())
    if len(edges) == 1 and _by_key(edges[0].channel):
        return met
    # Nobody keeps the order between streams, or between workers: the last that is said of a key may be any of it.
    reason, unsteady, twice = (
        "the last of a key may come here before others of it, by another way",
        met.unsteady,
        met.twice,
    )
    if met.again == Alike.LATEST:
        unsteady = _cause(Grade.DIVERGENT, node, reason, _EXACT)
    if met.seen == Alike.LATEST:
        twice = _cause(Grade.DIVERGENT, node, reason, _EXACT)
    alike, again, seen = (Alike.NOT if level == Alike.LATEST else level for level in (met.alike, met.again, met.seen))
    return replace(met, alike=alike, again=again, seen=seen, unsteady=unsteady, twice=twice)


def _by_key(channel: Channel) -> bool:
    """True if all records of one key sent by a worker stay together."""
    return channel == PIPELINE or (isinstance(channel, Exchange) and channel.key is None and not channel.columns)


def _leaving(node: Node, state: _State, program: _Program) -> _State:
    """Properties of the streams out of a node, given `state` of its input."""
    if node.sink is not None or node.kind in ("capture", "probe"):
        return state
    if node.kind == "gate" and state.firm:
        state = replace(state, again=Alike.EPOCHS, unsteady=None)
    policy = as_policy(node.policy)
    operators = program.operators
    arbitrary = why_arbitrary(node, operators)
    if node.source is not None:
        state = _of_source(node, arbitrary)
        if policy.anew and state.broken is None:  # what cannot be read again does not come twice
            state = _sent_anew(node, state)
    elif arbitrary is not None:
        state = _through_arbitrary(node, state, arbitrary, policy.saves == Saves.EVENTS, operators)
    elif node.index in program.divided:
        state = _through_divided(node, state, program.divided[node.index])
    else:
        state = _through(node, state, operators)
    if node.source is None and state.twice is not None:
        state = _given_twice(node, state, state.twice, operators)
    if state.lost is not None and node.index not in program.losing and keeps_state(node, operators):
        reason = (
            f"what {state.lost.kind} {state.lost.name!r} loses is missing here from then on: its totals are too small"
        )
        lacking = _cause(Grade.GAP, node, reason, f"give {state.lost.name!r} Lazy()", declared=True)
        state = replace(state, lacking=_weightier(state.lacking, lacking))
    if (loses := program.losing.get(node.index)) is not None:
        lost = _cause(Grade.GAP, node, loses, "give it Lazy(), which saves its state", declared=True)
        state = replace(state, lost=_weightier(state.lost, lost))
    return replace(state, firm=policy.firm and state.firm)


def _of_source(node: Node, arbitrary: str | None) -> _State:
    assert node.source is not None
    if not getattr(node.source, "rereadable", True):
        lost = _cause(
            *(Grade.GAP, node, "what a worker has read from it and not saved yet is lost when that worker dies"),
            "put a file or a queue in between, which can be read again",
        )
        return _State(Alike.NOT, Alike.NOT, lost, lost)
    if arbitrary is not None:
        other = _cause(Grade.DIVERGENT, node, f"it may give something else when it is read again: {arbitrary}", _EXACT)
        return _State(Alike.NOT, Alike.NOT, other)
    if source_repeats(node.source):
        return _State()
    other = _cause(
        *(
            Grade.CONVERGENT,
            node,
            "it does not say that it puts the same records into the same epochs when it is read again",
        ),
        _SAME_EPOCHS,
    )
    return _State(Alike.RECORDS, Alike.RECORDS, other, None)


def _sent_anew(node: Node, state: _State) -> _State:
    """Properties of the output of an AtLeastOnce source.

    It comes again beside the first, in whichever epochs.
    """
    mend = "give it Ephemeral(), with which those behind go back where they must"
    if state.again == Alike.RECORDS:
        mend = f"{_SAME_EPOCHS}; then {mend}"
    grade, seen, reason = (
        Grade.REPEATING,
        Alike.RECORDS,
        "what is not safe yet when something fails is sent once more, in a later epoch",
    )
    if state.again == Alike.NOT:
        assert state.unsteady is not None
        grade, seen, reason = Grade.DIVERGENT, Alike.NOT, f"{reason}, beside what had come; and {state.unsteady.reason}"
    twice = _cause(grade, node, reason, mend)
    return replace(state, again=Alike.EPOCHS, unsteady=None, twice=twice, seen=seen, doubled=True)


def _given_twice(node: Node, state: _State, twice: Cause, operators: Operators) -> _State:
    """Properties behind an operator with duplicate or later input after a failure.

    Later, where records are not doubled any more.
    """
    if class_of(node, operators) == OperatorClass.REPEATABLE:
        return replace(state, doubled=state.doubled and not gives_each_once(node, operators))
    seen, mend = _kept(state.seen, node, operators), f"give {twice.name!r} Ephemeral()"
    source = f"{twice.kind} {twice.name!r}"
    if not state.doubled and seen > Alike.NOT:
        grade, reason = (
            Grade.CONVERGENT,
            f"what {source} sends again may come in later epochs, with other totals until then",
        )
    elif state.doubled:
        grade, reason = Grade.DIVERGENT, f"what {source} sends a second time counts twice here"
    else:
        grade, reason = Grade.DIVERGENT, f"it goes by epochs, and what {source} sends again may come in later ones"
    if grade < twice.grade:
        state = replace(state, twice=_cause(grade, node, reason, mend))
    return replace(state, seen=seen)


def _through_arbitrary(node: Node, state: _State, why: str, replayed: bool, operators: Operators) -> _State:
    broken = state.broken
    if replayed and (node.stateful or keeps_state(node, operators)):
        other = _cause(
            *(Grade.DIVERGENT, node, f"its state comes back by doing all again, and may then become another: {why}"),
            "give it Lazy(), which saves what it has become",
        )
        broken = _weightier(broken, other)
    unsteady = _cause(Grade.DIVERGENT, node, f"it may send something else when it does a time again: {why}", _EXACT)
    return replace(state, alike=Alike.NOT, again=Alike.NOT, unsteady=unsteady, broken=broken)


def _through_divided(node: Node, state: _State, divided: Divided) -> _State:
    """Properties behind an operator over batches, if these may be divided otherwise.

    The operator repeats only over the same batches.
    """
    mend = f"declare repeats_over for {node.name!r} if it gives the same in whatever batches, or {_EXACT}"
    unsteady = _cause(Grade.DIVERGENT, node, str(divided), mend)
    return replace(state, alike=Alike.NOT, again=Alike.NOT, unsteady=unsteady)


def _through(node: Node, state: _State, operators: Operators) -> _State:
    """Properties behind a deterministic operator with changing division into epochs."""
    alike, again = (_kept(level, node, operators) for level in (state.alike, state.again))
    unsteady = state.unsteady
    if again == Alike.NOT < state.again:
        assert unsteady is not None
        reason = f"it goes by epochs, and {unsteady.kind} {unsteady.name!r} may divide them otherwise"
        unsteady = _cause(Grade.DIVERGENT, node, f"{reason} when it is read again", _EXACT)
    return replace(state, alike=alike, again=again, unsteady=unsteady)


def _kept(level: Alike, node: Node, operators: Operators) -> Alike:
    """Likeness of executions behind `node`, given their likeness before it."""
    if level in (Alike.EPOCHS, Alike.NOT):
        return level
    known = class_of(node, operators)
    if level == Alike.RECORDS:
        return {OperatorClass.REPEATABLE: Alike.RECORDS, OperatorClass.CONVERGENT_CAPABLE: Alike.LATEST}.get(
            known, Alike.NOT
        )
    return Alike.LATEST if keeps_keys(node) else Alike.NOT


def _promise(node: Node, state: _State) -> Promise:
    causes = [cause for cause in (state.broken, state.twice, state.lost, state.lacking) if cause is not None]
    if node.sink is not None and not getattr(node.sink, "exactly_once", False):
        written_again = "it is told each epoch as soon as that is complete, and after a failure some of them again"
        causes.append(
            _cause(Grade.REPEATING, node, written_again, f"{_EXACT}, or key what it does by epoch and worker")
        )
        if state.unsteady is not None:
            causes.append(state.unsteady)
    if not getattr(node.sink, "outlives", True):
        causes.append(
            _cause(Grade.GAP, node, "what it has taken is in the memory of a worker, and dies with that", _EXACT)
        )
    one = min((cause.grade for cause in causes), default=Grade.PRECISE)
    besides = min((cause.grade for cause in causes if not cause.declared), default=Grade.PRECISE)
    if as_policy(node.policy).durable is not None and state.unsteady is not None:
        again = (
            "it goes out once mates have what it comes from, and if a worker dies with its mate some of it goes out again: "
            + state.unsteady.reason
        )
        again_cause = _cause(
            state.unsteady.grade, node, again, "give it Lazy(), whose output waits until it is durable"
        )
        causes.append(replace_struct(again_cause, pair=True))
    if node.kind == "capture":
        handed = (
            "what it has handed over is in the memory of whoever runs the job; run again, the job does not repeat it"
        )
        causes.append(_cause(Grade.GAP, node, handed, _EXACT))
    causes = sorted(dict.fromkeys(causes), key=lambda cause: cause.grade)
    whole = min((cause.grade for cause in causes), default=Grade.PRECISE)
    return Promise(node.name, node.kind, str(node.site), one, whole, state.alike, tuple(causes), state.seen, besides)


def _cause(grade: Grade, node: Node, reason: str, mend: str, declared: bool = False) -> Cause:
    return Cause(grade, node.name, node.kind, str(node.site), reason, mend, declared)


def _weightier(one: Cause | None, other: Cause | None) -> Cause | None:
    return min((cause for cause in (one, other) if cause is not None), default=None)
