"""Connected components of a random graph as a loop of column verbs, in processor seconds; each answer is compared with SciPy's.

`--part scipy` measures SciPy.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import polars as pl
from common import arguments, report
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import falkirk
from falkirk import Batches, Columns, Dataflow, agg

Ids = npt.NDArray[np.int64]


def edges(nodes: int) -> tuple[Ids, Ids]:
    """Five random edges a node."""
    rng = np.random.default_rng(7)
    return rng.integers(0, nodes, 5 * nodes), rng.integers(0, nodes, 5 * nodes)


def by_verbs(begin: Ids, end: Ids) -> tuple[float, Ids, Ids]:
    """Processor seconds of the run, and the nodes, each with the least node of its component."""
    both = pl.DataFrame({"node": np.concatenate([begin, end]), "to": np.concatenate([end, begin])})
    flow = Dataflow("components")
    links = flow.columns("links", Batches([both]))

    def tell(labels: Columns) -> Columns:
        best = labels.group_by("node").agg(label=agg.min("label"))
        near = {"node": pl.Int64, "to": pl.Int64}
        told = best.join(links.enter(labels.scope), on="node", how="lookup", right=near)
        return told.filter(pl.col("to").is_not_null()).select("label", node="to")

    labels = links.select("node", label="node").iterate(tell)
    labels.group_by("node").agg(label=agg.min("label"), over="time").capture("out")
    began = time.process_time()
    result = falkirk.run(flow)
    seconds = time.process_time() - began
    found = pl.concat(pl.DataFrame(batch) for _, batch in result.captured("out")).sort("node")
    return seconds, found["node"].to_numpy(), found["label"].to_numpy()


def by_scipy(begin: Ids, end: Ids, nodes: int) -> tuple[float, Ids, Ids]:
    """The same by SciPy."""
    began = time.process_time()
    _, component = connected_components(
        coo_array((np.ones(len(begin), bool), (begin, end)), (nodes, nodes)), directed=False
    )
    seconds = time.process_time() - began
    there = np.unique(np.concatenate([begin, end]))
    least = np.full(nodes, nodes)
    np.minimum.at(least, component[there], there)
    return seconds, there, least[component[there]]


def main() -> None:
    args = arguments()
    begin, end = edges(args.size)
    right = by_scipy(begin, end, args.size)
    by_verbs(*edges(100))  # libraries load what they need
    seconds, *found = right if args.part == "scipy" else by_verbs(begin, end)
    for mine, theirs in zip(found, right[1:], strict=True):
        assert np.array_equal(mine, theirs), "the components are not SciPy's"
    report(seconds, check={"nodes": len(found[0]), "components": len(np.unique(found[1]))})


if __name__ == "__main__":
    main()
