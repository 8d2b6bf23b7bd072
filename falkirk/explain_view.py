"""`falkirk explain`: delivery guarantee of each output, its causes, and remedies."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from falkirk.tables import print_table, short_path
from recovery.guarantees.classes import operators_of
from recovery.guarantees.notes import notes_of
from recovery.guarantees.promises import Grade, Promise, as_plain, promises
from recovery.guarantees.repeating import Divided, between_workers, divided
from recovery.layout import lay_out
from runtime.program import Program
from timely.dataflow.plan import compile_plan

_WORDS = {
    Grade.PRECISE: "the output of a run in which nothing failed",
    Grade.REPEATING: "what comes again is what came before: an epoch, or behind AtLeastOnce records in a later one",
    Grade.CONVERGENT: "some comes again, perhaps otherwise; its last word is right",
    Grade.DIVERGENT: "nothing is missing, but parts of several executions may stand side by side",
    Grade.GAP: "records may be missing",
}


def explain_program(program: Program, as_json: bool) -> int:
    """Print the guarantee of each output of `program` with a store; exit code 0.

    Raises GraphError if it could not run with one.
    """
    graph = program.build().graph
    operators = operators_of(graph)
    found = promises(graph, operators)
    if as_json:
        print(json.dumps([as_plain(promise) for promise in found]))
    else:
        console = Console(width=None if os.isatty(1) else 120, highlight=False, markup=False)
        show_promises(graph.name, found, console)
        show_divided(divided(graph, between_workers, operators).values(), console)
    # Only now: whoever has to find out why the program is refused can look at this.
    sys.stdout.flush()
    lay_out(compile_plan(graph))
    for text in notes_of(graph):
        print(f"note: {text}", file=sys.stderr)
    return 0


def show_promises(name: str, found: Sequence[Promise], console: Console) -> None:
    """Print guarantees as a table, with the causes of weaker ones and a legend."""
    if not found:
        console.print(f"{name} has no output: give it a sink or a capture.")
        return
    rows = [(each.output, each.kind, _short(each.site), str(each.one), str(each.any)) for each in found]
    print_table(console, ("output", "kind", "made at", "if one process fails", "if any number do"), rows)
    outputs: dict[tuple[str, str], list[str]] = {}
    for promise in found:
        for cause in promise.causes:
            own = cause.name == promise.output
            who = "" if own else f"{cause.kind} {cause.name!r} ({_short(cause.site)}): "
            outputs.setdefault((f"{cause.grade}, for {who}{cause.reason}", cause.mend), []).append(promise.output)
    for (reason, mend), names in outputs.items():
        console.print()
        _print_wrapped(console, f"{', '.join(names)}: {reason}.", "")
        _print_wrapped(console, f"To mend it, {mend}.", "dim")
    console.print()
    for grade in sorted({grade for each in found for grade in (each.one, each.any)}, reverse=True):
        console.print(Text.assemble((str(grade), "bold"), f": {_WORDS[grade]}"))


def show_divided(found: Iterable[Divided], console: Console) -> None:
    """Print operators repeatable only with equal batches, and the streams in front."""
    for each in found:
        console.print()
        text = (
            f"{each.node.kind} {each.node.name!r} ({_short(str(each.node.site))}): {each}. Survivors go back with it."
        )
        _print_wrapped(console, text, "")
        _print_wrapped(console, "If it gives the same in whatever batches, declare that: repeats_over.", "dim")


def _print_wrapped(console: Console, text: str, style: str) -> None:
    for line in wrap(text, console.width, subsequent_indent="  ", initial_indent="  " if style else ""):
        console.print(Text(line, style=style))


def _short(site: str) -> str:
    """The site with a relative path, if shorter."""
    file, _, line = site.rpartition(":")
    return f"{short_path(file)}:{line}"
