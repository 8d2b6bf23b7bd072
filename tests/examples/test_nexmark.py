"""The queries of Nexmark against Polars over the whole input, on one worker and several, and whatever fails."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from falkirk.simulate.simulation import Simulation
from runtime.session.cluster import Cluster
from tests.support.profile import tries

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "nexmark"))

import in_polars
import queries
from house import KINDS, House

HOUSE = House(events=4_000, per_epoch=200, per_second=100)
Rows = list[tuple[Any, ...]]


def whole(kind: str) -> pl.DataFrame:
    """All persons, auctions or bids, with their epochs."""
    return pl.concat(HOUSE.frame(kind, epoch).with_columns(epoch=pl.lit(epoch)) for epoch in range(HOUSE.epochs))


def rows(captured: list[tuple[Any, Any]], query: str) -> Rows:
    """The rows that a query has given."""
    if query in ("q4", "q6"):  # the last of each category, or seller
        return sorted(dict(row for _, batch in captured for row in pl.DataFrame(batch).rows()).items())
    return sorted(row for _, batch in captured for row in pl.DataFrame(batch).rows())


def build(query: str) -> Any:
    return queries.build(query, HOUSE.events, HOUSE.per_epoch, HOUSE.per_second, HOUSE.seed)


@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.soak), 2, pytest.param(3, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("query", queries.QUERIES)
def test_query_gives_what_polars_gives(query: str, workers: int) -> None:
    flow = build(query)
    cluster = Cluster(flow, workers, seed=workers)
    cluster.run()
    right = sorted(in_polars.QUERIES[query]({kind: whole(kind) for kind in KINDS}).rows())
    assert right
    assert rows(cluster.captured("out"), query) == right


@pytest.mark.check
@pytest.mark.parametrize(
    "query",
    [
        pytest.param(each, marks=[pytest.mark.soak] * (each not in ("q4", "q5", "q6", "q8", "q11", "q12")))
        for each in queries.QUERIES
    ],
)
def test_query_gives_the_same_whatever_fails(query: str) -> None:
    small = partial(queries.build, query, 1_000, 100, 100)
    for seed in range(1, 1 + tries(1)):
        failure = Simulation(small, 1 + seed % 3).run(seed)
        assert failure is None, f"seed {seed}: {failure and failure.error}"
