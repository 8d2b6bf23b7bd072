"""Make docs/reference/obligations.md from the declarations of operators.

scripts/obligations_page.py            write the page
scripts/obligations_page.py --print    print it
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from recovery.guarantees.classes import class_of, operators_of
from recovery.guarantees.repeating import obligation_of
from tests.recovery.guarantees.test_divisions import GRAPHS, OF_COLUMNS, OF_RECORDS, of_graph
from timely.dataflow.keyed import Keyed
from timely.dataflow.wire import view

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "obligations.md"

HEAD = """\
# What each verb repeats over

After a failure a time may be done again, with its records in other batches and in another order. Each operator declares the
divisions of its input over which it gives the same; [guarantees](../guarantees.md#what-an-operator-repeats-over) says
what X say how far the output depends on where epochs end. The tests run every row of
this page on drawn records in several divisions; `scripts/obligations_page.py` makes it of what the operators declare.
"""


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Kind of stream, verb, declaration and class of each public verb."""
    cases = [(name, kind, verb) for name, (kind, verb) in OF_RECORDS.items()]
    cases += [(name, Columns, verb) for name, verb in OF_COLUMNS.items()]
    cases += [(f"graph.{name}", Keyed, of_graph(made)) for name, made in GRAPHS.items()]
    for name, kind, verb in cases:
        yield (*name.split(".", 1), *_declared(kind, verb))


def _declared(kind: type, verb: Callable[[Any], Any]) -> tuple[str, str]:
    """Weakest declaration among the operators of `verb`; class of the last one."""
    flow = Dataflow()
    stream = flow.input("in")
    made = verb(stream.keyed() if kind is Keyed else view(stream, kind))
    operators = operators_of(flow.graph)
    added = [node for node in flow.graph.nodes if node.kind != "input"]
    found = {
        min(obligation_of(node, operators.get(node.index), port) for port in range(max(node.inputs, 1)))
        for node in added
    }
    last = flow.graph.nodes[made.outputs[0].node]
    return (min(found).name.lower() if found else "record"), class_of(last, operators).name.lower().replace("_", "-")


def page() -> str:
    """The page, as Markdown."""
    parts = [HEAD]
    for kind, found in groupby(sorted(set(rows())), key=lambda row: row[0]):
        parts.append(f"\n## {kind}\n\n| verb | repeats over | class |\n|---|---|---|\n")
        parts += [f"| {verb} | {declared} | {of} |\n" for _, verb, declared, of in found]
    return "".join(parts)


def main() -> None:
    """Write the page, or print it with `--print`."""
    if "--print" in sys.argv:
        sys.stdout.write(page())
    else:
        PAGE.write_text(page())


if __name__ == "__main__":
    main()
