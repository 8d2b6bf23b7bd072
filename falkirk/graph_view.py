"""`falkirk graph`: a program's dataflow as a picture, as Mermaid, or as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import networkx as nx
import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from falkirk.tables import fitted, short_path
from runtime.program import Program
from timely.dataflow.draw import mermaid
from timely.dataflow.graph import Edge, Graph, Node, Output, Scope
from timely.dataflow.plan import compile_plan
from timely.operators.channels import PIPELINE

_WIDTH_OF_FILES = 160
"""Width in characters of a picture written to a file or a pipe."""

_COLOURS = ["green", "magenta", "blue", "yellow", "cyan", "red"]


def show_graph(program: Program, form: str, schemas: bool = False) -> int:
    """Print the graph of `program` as "tree", "mermaid" or "json"; exit code 0.

    `schemas`: a tree has the columns of streams, too.

    Raises:
        GraphError: if it could not run.
    """
    graph = program.build().graph
    if form == "mermaid":
        print(mermaid(graph))
    elif form == "json":
        print(json.dumps(describe(graph), indent=2))
    else:
        console = Console(
            width=None if sys.stdout.isatty() else _WIDTH_OF_FILES, highlight=False, markup=False, emoji=False
        )
        unicode = (console.encoding or "").lower().startswith("utf")
        with console.capture() as drawn:
            for part in picture(graph, unicode, console.width, schemas):
                console.print(part, soft_wrap=isinstance(part, Text))
        print(drawn.get(), end="")
    # Only now: whoever has to find a mistake in the graph can look at it.
    sys.stdout.flush()
    compile_plan(graph, 1)
    return 0


def describe(graph: Graph) -> dict[str, Any]:
    """The graph as plain data, with references by index or name."""
    return {
        "name": graph.name,
        "scopes": [
            {"index": s.index, "name": s.name, "parent": s.parent.index if s.parent else None, "depth": s.depth}
            for s in graph.scopes
        ],
        "regions": [{"name": r.name, "policy": None if r.policy is None else str(r.policy)} for r in graph.regions],
        "nodes": [
            {
                "index": node.index,
                "name": node.name,
                "kind": node.kind,
                "scope": node.scope.index,
                "region": node.region.name if node.region else None,
                "stateful": node.stateful,
                "file": node.site.file,
                "line": node.site.line,
                "columns": [_types(graph.schema_of(Output(node.index, port))) for port in range(node.outputs)],
            }
            for node in graph.nodes
        ],
        "edges": [
            {
                "source": edge.source.node,
                "output": edge.source.port,
                "target": edge.target.node,
                "input": edge.target.port,
                "channel": edge.channel.describe(),
            }
            for edge in graph.edges
        ],
    }


def picture(graph: Graph, unicode: bool = True, width: int = 160, schemas: bool = False) -> list[Table | Text]:
    """The graph as a table with one operator per row, upstream first.

    The content of a scope is indented below its name.

    `schemas`: with the columns of streams where they are known, and without the line of the program.
    """
    colours = {region.name: _COLOURS[i % len(_COLOURS)] for i, region in enumerate(graph.regions)}
    rows: list[list[Text]] = []
    order = {index: place for place, index in enumerate(upstream_first(graph))}
    incoming = graph.incoming()
    for guide, entry in _rows(graph, graph.root, order, "", unicode):
        site = Text(f"{short_path(entry.site.file)}:{entry.site.line}", style="dim")
        if schemas:
            site = Text() if isinstance(entry, Scope) else _columns(graph, entry)
        label: list[Text]
        if isinstance(entry, Scope):
            label = [Text(entry.name, style="bold"), Text("scope", style="dim"), Text(), Text()]
        else:
            region = entry.region
            mark = Text(region.name, style=colours[region.name]) if region else Text()
            of = entry.source or entry.sink
            what = f"{entry.kind} {type(of).__name__}" if of is not None else entry.kind
            kind = Text(what, style="cyan" if entry.kind in ("source", "input", "sink", "capture") else "")
            if entry.stateful:
                kind.append(" *", style="bold")
            label = [Text(entry.name, style="bold"), kind, _inputs(graph, incoming[entry.index], unicode), mark]
        first, kind, reads, mark = label
        rows.append([Text.assemble((guide, "dim"), first), kind, reads, mark, site])
    exchanges = sum(edge.channel != PIPELINE for edge in graph.edges)
    head = Text.assemble(
        (graph.name, "bold"),
        f": {_count(len(graph.nodes), 'operator')}, {_count(exchanges, 'exchange')}",
        f", {_count(len(graph.scopes) - 1, 'scope')}" if len(graph.scopes) > 1 else "",
    )
    headers = ("operator", "kind", "reads from", "region", "columns" if schemas else "made at")
    parts: list[Table | Text] = [head, Text(), *fitted(headers, rows, width, whole=("operator",))]
    for region in graph.regions:
        policy = "without a policy" if region.policy is None else f"policy {region.policy}"
        parts.append(
            Text.assemble(
                "\nregion " if region is graph.regions[0] else "region ",
                (region.name, colours[region.name]),
                f": {policy}",
            )
        )
    legend = []
    if exchanges:
        legend.append(f"{'⇐' if unicode else '<='} from all workers")
    if any(node.kind == "feedback" for node in graph.nodes):
        legend.append(f"{'↺' if unicode else '@'} closes a loop")
    if any(node.stateful for node in graph.nodes):
        legend.append("* keeps state")
    if legend:
        parts.append(Text("\n" + "   ".join(legend), style="dim"))
    return parts


def _types(schema: pl.Schema | None) -> dict[str, str] | None:
    return None if schema is None else {name: str(kind) for name, kind in schema.items() if not name.endswith("()")}


def _columns(graph: Graph, node: Node) -> Text:
    """Known columns of a node's output streams."""
    known = [_types(graph.schema_of(Output(node.index, port))) for port in range(node.outputs)]
    shown = [", ".join(f"{name}: {kind}" for name, kind in types.items()) for types in known if types is not None]
    return Text("; ".join(dict.fromkeys(shown)), style="dim")


def upstream_first(graph: Graph) -> list[int]:
    """Node indices in topological order, ties in order of creation.

    In the order of creation, if the graph has an invalid cycle.
    """
    plain: nx.DiGraph[int] = nx.DiGraph()
    plain.add_nodes_from(node.index for node in graph.nodes)
    # A feedback is where a loop begins, so what closes the loop does not count.
    plain.add_edges_from(
        (edge.source.node, edge.target.node) for edge in graph.edges if graph.nodes[edge.target.node].kind != "feedback"
    )
    if not nx.is_directed_acyclic_graph(plain):
        return [node.index for node in graph.nodes]  # a mistake, which the plan will name
    return list(nx.lexicographical_topological_sort(plain))


def _rows(
    graph: Graph, scope: Scope, order: dict[int, int], above: str, unicode: bool
) -> list[tuple[str, Node | Scope]]:
    """Entries of `scope` with guide lines; a scope is placed at its first operator."""
    inside: list[tuple[int, Node | Scope]] = [(order[n.index], n) for n in graph.nodes if n.scope is scope]
    for child in graph.scopes:
        if child.parent is scope:
            members = [order[n.index] for n in graph.nodes if child in n.scope.path()]
            inside.append((min(members, default=len(order)), child))
    inside.sort(key=lambda entry: entry[0])
    fork, last, down = ("├─ ", "└─ ", "│  ") if unicode else ("|- ", "`- ", "|  ")
    rows: list[tuple[str, Node | Scope]] = []
    for place, (_, entry) in enumerate(inside):
        ends = place == len(inside) - 1
        rows.append((above + (last if ends else fork), entry))
        if isinstance(entry, Scope):
            rows += _rows(graph, entry, order, above + ("   " if ends else down), unicode)
    return rows


def _inputs(graph: Graph, edges: list[Edge], unicode: bool) -> Text:
    shown = Text()
    for edge in sorted(edges, key=lambda edge: edge.target.port):
        if shown:
            shown.append(", ")
        source = graph.nodes[edge.source.node]
        if graph.nodes[edge.target.node].kind == "feedback":
            shown.append("↺ " if unicode else "@ ", style="magenta")
        elif edge.channel != PIPELINE:
            shown.append("⇐ " if unicode else "<= ", style="yellow")
        shown.append(source.name)
        if source.outputs > 1:
            shown.append(f"[{edge.source.port}]", style="dim")
        if edge.channel != PIPELINE:
            shown.append(f" ({edge.channel.describe()})", style="yellow")
    return shown


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
