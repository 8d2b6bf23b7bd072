"""Small layouts, written down directly."""

from __future__ import annotations

import json
from collections.abc import Sequence

import networkx as nx

from recovery.layout import EdgeInfo, GroupInfo, Layout, ProcessorInfo
from timely.time import Summary

SHIFTS = {"in": Summary.ingress(1), "out": Summary.egress(2), "back": Summary.feedback(2)}


def layout(
    processors: str,
    edges: str,
    workers: int = 2,
    groups: GroupInfo = GroupInfo(1, None),  # noqa: B008  # frozen
    policies: Sequence[str] = (),
    kept: bool = False,
) -> Layout:
    """`processors`: "a source, b any, c chain2": names with any or chain (or a role), and the depth if it is not 1.

    `edges`: "a>b, b=>c, b|c, d>back>e": local, spread, logged (and spread), and with a shift of time. `kept`: of all that are
    spread; then every processor repeats as well.
    """
    infos = []
    for text in processors.split(","):
        name, kind = text.split()
        depth = 2 if kind.endswith("2") else 1
        kind = kind.rstrip("2")
        role = kind if kind in ("source", "sink") else "operator"
        infos.append(ProcessorInfo(name, "operator", "app.py:1", None, "Lazy", depth, kind != "any", 0, role))
    names = [info.name for info in infos]
    found = []
    for text in edges.split(","):
        logged, spread = "|" in text, "|" in text or "=>" in text
        source, *shift, target = text.replace("|", ">").replace("=>", ">").split(">")
        ends = names.index(source.strip()), names.index(target.strip())
        summary = SHIFTS[shift[0]] if shift else Summary.identity(infos[ends[0]].depth)
        port = sum(edge.source == ends[0] for edge in found)
        into = sum(edge.target == ends[1] for edge in found)
        found.append(
            EdgeInfo(
                *(ends[0], port, ends[1], into, len(found), spread, logged, summary.depth, summary.add, summary.append),
                kept=kept and spread,
            )
        )
    together: nx.Graph[int] = nx.Graph()
    together.add_nodes_from(range(len(infos)))
    together.add_edges_from((edge.source, edge.target) for edge in found if not edge.logged)
    members = sorted(map(sorted, nx.connected_components(together)))
    of = {index: number for number, group in enumerate(members) for index in group}
    infos = [
        ProcessorInfo(
            *(getattr(info, field) for field in info.__struct_fields__[:4]),
            policies[index] if policies else info.policy,
            info.depth,
            info.chain,
            of[index],
            info.role,
            repeats=kept,
        )
        for index, info in enumerate(infos)
    ]
    outline = json.dumps({info.name: {"kind": info.kind, "policy": info.policy} for info in infos})
    return Layout("job", str(hash_of(outline)), outline, workers, tuple(infos), tuple(found), (groups,) * len(members))


def hash_of(text: str) -> int:
    """The same in every process."""
    return sum((index + 1) * ord(letter) for index, letter in enumerate(text))


LINE = ("read source, map any, count chain, out sink", "read>map, map=>count, count>out")
FIREWALL = ("read source, clean chain, count chain, out any", "read>clean, clean|count, count>out")
LOOP = (
    "read source, enter any, body any2, back any2, state chain2, leave any2, out sink",
    "read>enter, enter>in>body, body=>state, state>back, back>back>body, state>leave, leave>out>out",
)
TWO = ("a source, b any, c chain, d source, e any, f chain", "a>b, b|c, d=>e, e>f, c|f")

LAYOUTS = {"line": LINE, "firewall": FIREWALL, "loop": LOOP, "two": TWO}
