"""PageRank over the families of Renaissance Florence, tied by marriage.

    falkirk run examples/pagerank.py -w 2
    falkirk run examples/pagerank.py --arg path=edges.csv

The file lists pairs (a, b), each a tie in both directions. In every iteration each node shares its rank equally among its
neighbours (Page and Brin, 1998). The ties by marriage are those that J. F. Padgett compiled; guess who comes first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import falkirk
from falkirk import Dataflow, Keyed

FLORENCE = Path(__file__).parent / "data" / "florence.csv"
DAMPING = 0.85


def build(path: str | Path = FLORENCE, iterations: int = 100) -> Dataflow:
    """Prints all nodes of the graph in `path`, the most important one first."""
    flow = Dataflow("pagerank")
    pairs = flow.source("pairs", falkirk.Csv(path, as_records=True))
    edges = pairs.flat_map(lambda row: [(row["a"], row["b"]), (row["b"], row["a"])], name="both-ways").keyed()
    neighbours = edges.fold((), lambda known, node: (*known, node), over="time", name="neighbours")
    everyone = neighbours.records().map(lambda pair: pair[0], name="nodes").key_by(lambda _: "all", name="to-one-place")
    size = everyone.fold(0, lambda n, _: n + 1, over="time", name="size")
    nodes = everyone.join(size, over="time", name="with-size").values()

    def step(ranks: Keyed) -> tuple[Keyed, Keyed]:
        """(node, (iteration, rank, size)) once round; what leaves is every iteration's ranks."""
        met = ranks.join(neighbours.enter(ranks.scope), name="meet-neighbours").records()
        shares = met.flat_map(share, name="share").keyed()
        return shares.reduce(gather, over="time", name="gather").map_values(damp, name="damp"), ranks

    start = nodes.map(lambda pair: (pair[0], (0, 1 / pair[1], pair[1])), name="start").keyed()
    ranks = start.iterate(step, limit=iterations, name="pagerank").max(over="time", name="last-iteration")

    ranking = ranks.records().key_by(lambda _: "all").fold((), lambda known, each: (*known, each), over="time")
    ranking.values().flat_map(lines, name="lines").to(falkirk.Console())
    return flow


def share(met: Any) -> list[Any]:
    """The share of its rank that a node sends to each of its neighbours."""
    _, ((iteration, rank, size), neighbours) = met
    return [(node, (iteration, rank / len(neighbours), size)) for node in neighbours]


def gather(a: Any, b: Any) -> Any:
    """The sum of two shares."""
    return a[0], a[1] + b[1], a[2]


def damp(total: Any) -> Any:
    """The rank of the next iteration: most of what was sent, and a little for everybody."""
    iteration, sent, size = total
    return iteration + 1, (1 - DAMPING) / size + DAMPING * sent, size


def lines(ranked: Any) -> list[str]:
    """Nodes with their ranks, the greatest first."""
    best = sorted(ranked, key=lambda each: (-each[1][1], each[0]))
    return [f"{rank:.6f} {node}" for node, (_, rank, _) in best]
