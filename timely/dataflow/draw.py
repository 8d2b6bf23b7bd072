"""Drawing a graph as text: Mermaid, for notebooks, documents and the command line."""

from __future__ import annotations

from timely.dataflow.graph import Graph, Node, Scope
from timely.operators.channels import PIPELINE

_SHAPES = {"source": ("([", "])"), "input": ("([", "])"), "sink": ("[/", "/]"), "probe": ("((", "))")}


def mermaid(graph: Graph) -> str:
    """Mermaid flowchart of a graph.

    Scopes are boxes, thick arrows are exchanges, dotted ones go back in a loop.
    """
    lines = ["flowchart LR"]
    _scope(graph, graph.root, lines, "  ")
    for edge in graph.edges:
        target = graph.nodes[edge.target.node]
        if edge.channel != PIPELINE:
            arrow = f"== {_quote(edge.channel.describe())} ==>"
        elif graph.nodes[edge.source.node].kind == "feedback":
            arrow = "-.->"
        else:
            arrow = "-->"
        lines.append(f"  n{edge.source.node} {arrow} n{target.index}")
    for number, region in enumerate(graph.regions):
        members = [f"n{node.index}" for node in graph.nodes if node.region is region]
        if members:
            lines.append(f"  classDef region{number} stroke-width:3px")
            lines.append(f"  class {','.join(members)} region{number}")
    return "\n".join(lines)


def _scope(graph: Graph, scope: Scope, lines: list[str], indent: str) -> None:
    for node in graph.nodes:
        if node.scope is scope:
            lines.append(indent + _node(node))
    for child in graph.scopes:
        if child.parent is scope:
            lines.append(f"{indent}subgraph s{child.index} [{_quote(child.name)}]")
            _scope(graph, child, lines, indent + "  ")
            lines.append(f"{indent}end")


def _node(node: Node) -> str:
    opening, closing = _SHAPES.get(node.kind, ("[", "]"))
    label = node.name if node.name.startswith(node.kind) else f"{node.name}<br/><i>{node.kind}</i>"
    return f"n{node.index}{opening}{_quote(label)}{closing}"


def _quote(text: str) -> str:
    return '"' + text.replace('"', "#quot;") + '"'
