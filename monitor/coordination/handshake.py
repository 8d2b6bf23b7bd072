"""Identity of a job: its workers, its stores, and changes that make it another.

Where an operator stands in the user's file, and how often it is checkpointed, may change between runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection

from monitor.coordination.records import KeptDecision
from recovery.layout import Layout, ProcessorInfo
from recovery.protocol import Join
from timely.dataflow.fingerprint import changed_fields, differences, read_outline
from timely.dataflow.functions import function_changes
from timely.errors import ProtocolError
from timely.state.shapes import renamed, shape_changes

_FIELDS = {
    "policy": "its policy",
    "kind": "its kind",
    "region": "its region",
    "role": "its role",
    "chain": "whether it persists anything",
    "history": "whether it persists its history",
    "depth": "the number of scopes around it",
    "group": "what it is checkpointed together with",
}


def refusal(join: Join, layout: Layout, decision: KeptDecision | None) -> str | None:
    """Reason against accepting a worker; None if it fits.

    Args:
        join: what it says.
        layout: of the job.
        decision: the last one in the monitor's journal.
    """
    who = join.place
    if join.layout.workers != layout.workers:
        return (
            f"{who} was started as one of {join.layout.workers} worker(s), and the monitor for {layout.workers}: "
            "start all with the same number"
        )
    if join.layout.number != layout.number:
        return (
            f"{who} has the journal of layout {join.layout.number} of the store, and the job is at layout "
            f"{layout.number}: it went on with another number of workers meanwhile. Start all anew"
        )
    try:
        changes = layout_changes(layout, join.layout)
    except ProtocolError as error:
        return f"{who} cannot take part: {error}"
    if changes:
        lines = "\n  ".join(changes)
        return (
            f"{who} runs another program than the one that the store, or another worker, knows:\n  {lines}\n"
            "Run the program as it was, or choose another store"
        )
    known, previous = (decision.generation, decision.previous) if decision else (0, 0)
    if join.generation > known:
        return (
            f"{who} has applied decision {join.generation}, which the journal of the monitor does not have (its "
            f"last is {known}): the monitor's folder of the store is older than the worker's. Bring back the whole store "
            "as it was"
        )
    if join.generation not in (known, previous) and who.at_work:  # a copy has no journal
        return (
            f"the store of {who} knows decisions up to {join.generation} only, and must know {previous}: it was "
            "lost, or is an older copy. Bring back the whole store as it was"
        )
    return None


def another_program(before: Layout | None, now: Layout, accept: Collection[str] = ()) -> str | None:
    """Reason against running `now` on a store of layout `before`; None if it fits.

    Of the operators in `accept` functions may have changed.
    """
    if before is None:
        return None
    if changes := layout_changes(before, now):
        lines = "\n  ".join(changes)
        return (
            f"this is another program than the one that the store belongs to:\n  {lines}\n"
            "Run the program as it was, keep what it has for this one by falkirk upgrade, or choose another store"
        )
    changed = {name: lines for name, lines in functions_changed(before, now).items() if name not in accept}
    if not changed:
        return None
    sites = now.functions.sites if now.functions is not None else {}
    described = "\n  ".join(f"{sites.get(name, name)}: {line}" for name, lines in changed.items() for line in lines)
    names = ",".join(changed)
    return (
        f"functions of the program are not those that wrote this store, or have other values:\n  {described}\n"
        "If what they did before and what they do now may stand in one result, say so once: falkirk run --accept "
        f"{shlex.quote(names)}, or falkirk.run(accept={names!r}). Otherwise run the program as it was, or choose another store"
    )


def functions_changed(before: Layout, now: Layout) -> dict[str, list[str]]:
    """Recorded changes of functions between layouts of one job, by operator."""
    changed = function_changes(before.functions, now.functions)
    for old, info in zip(before.processors, now.processors):
        if lines := renamed(old.state or (), info.state or ()):
            changed.setdefault(info.name, []).extend(lines)
    return changed


def layout_changes(before: Layout, after: Layout) -> list[str]:
    """Changes from `before` to `after` of the identity of a job, as sentences.

    Empty when nothing makes it another job.
    """
    lines = []
    if before.workers != after.workers:
        lines.append(
            f"it was run by {before.workers} worker(s) and is now by {after.workers}: its state moves to another number only "
            f"where its workers are processes of this host; run it with {before.workers}"
        )
    lines += differences(read_outline(before.outline), read_outline(after.outline))
    old = {info.name: info for info in before.processors}
    for info in after.processors:
        was = old.pop(info.name, None)
        if was is None:
            if f"operator {info.name!r} is new" not in lines:
                lines.append(f"operator {info.name!r} is new, or is fused with others in another way")
            continue
        lines += [f"operator {info.name!r}: {text}" for text in _changed(was, info).values()]
        if was.state is not None and info.state is not None:
            described = f"{info.kind} {info.name!r} ({info.site})"
            lines += [f"{described}: {change}" for change in shape_changes(was.state, info.state)]
    gone = [name for name in old if f"operator {name!r} is gone" not in lines]
    lines += [f"operator {name!r} is gone, or is fused with others in another way" for name in gone]
    if not lines and [info.name for info in before.processors] != [info.name for info in after.processors]:
        lines.append("its operators are in another order")
    if not lines:
        lines += _edge_changes(before, after)
    if not lines and before.fingerprint != after.fingerprint:
        lines.append(f"its fingerprint was {before.fingerprint} and is {after.fingerprint}")
    return list(dict.fromkeys(lines))


def operator_changes(before: Layout, after: Layout) -> dict[str, list[str]]:
    """Changes of the operators in both layouts, in words, by operator.

    Without groups, which have numbers, and inputs, which change with other operators: both follow from the rest.
    """
    found = {
        name: [text for field, text in fields.items() if field != "inputs"]
        for name, fields in changed_fields(read_outline(before.outline), read_outline(after.outline)).items()
    }
    old = {info.name: info for info in before.processors}
    for info in after.processors:
        if (was := old.get(info.name)) is not None:
            found.setdefault(info.name, []).extend(
                text for field, text in _changed(was, info).items() if field != "group"
            )
    return {name: list(dict.fromkeys(lines)) for name, lines in found.items()}


def _changed(was: ProcessorInfo, now: ProcessorInfo) -> dict[str, str]:
    """Changes of a processor, in words, by field."""
    return {
        name: f"{words} was {getattr(was, name)!r} and is {getattr(now, name)!r}"
        for name, words in _FIELDS.items()
        if getattr(was, name) != getattr(now, name)
    }


def _edge_changes(before: Layout, after: Layout) -> list[str]:
    """Changed edges between layouts with equal processors, as sentences.

    Above all whether they are logged.
    """
    lines = []
    for old, new in zip(before.edges, after.edges):
        if old != new:
            names = [info.name for info in after.processors]
            if not all(0 <= end < len(names) for end in (new.source, new.target)):  # it comes from another process
                return ["an edge leads to an operator that it does not have"]
            ends = f"{names[new.source]!r} to {names[new.target]!r}"
            what = "is of another kind"
            if old.logged != new.logged:
                what = "is now logged" if new.logged else "is no longer logged"
            lines.append(f"the edge from {ends} {what}")
    if len(before.edges) != len(after.edges):
        lines.append(f"it had {len(before.edges)} edges and has {len(after.edges)}")
    return lines
