"""The expected results of the demo, without Falkirk: aggregates by Polars, chains by networkx; and a comparison of two runs.

All of it is integers, so that equal means equal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import networkx as nx
import polars as pl
from flights_data import WEEK

from falkirk import Result, Time
from timely.data.batch import Batch, as_arrow, is_columns

Table = Mapping[Any, Any]

CAPTURES = ("carriers", "routes", "stranded", "causes", "knock-on", "history")


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that the dataflow finds."""

    carriers: Table
    """Carrier → (flights that arrived, late ones, minutes behind schedule in sum, and at worst)."""
    routes: Table
    """Route → the same."""
    stranded: Table
    """Carrier → flights that never arrived."""
    causes: Table
    """Late flight → (first late flight of its chain, flights in between and itself)."""
    knock_on: Table
    """First late flight of a chain → (flights of the chain, their minutes behind schedule in sum)."""
    history: Table
    """(Week, route) → (flights that arrived by its end, late ones, median and third quartile of minutes behind schedule)."""

    @classmethod
    def of(cls, result: Result) -> Findings:
        """From the captures of a finished run: running totals end with their last value."""
        return cls(
            carriers=_last_rows(result, "carriers"),
            routes=_last_rows(result, "routes"),
            stranded=_last_pairs(result, "stranded"),
            causes=_last_pairs(result, "causes"),
            knock_on=_last_pairs(result, "knock-on"),
            history={
                (time[0] // WEEK, row[0]): row[1:] for time, batch in result.captured("history") for row in _rows(batch)
            },
        )


def _last_rows(result: Result, capture: str) -> Table:
    return {row[0]: row[1:] for _, batch in result.captured(capture) for row in _rows(batch)}


def _rows(batch: Batch) -> list[Any]:
    """The records of a batch; of columns, its rows as tuples."""
    if is_columns(batch):
        return list(zip(*(column.to_pylist() for column in as_arrow(batch).columns)))
    assert isinstance(batch, list)
    return batch


def _last_pairs(result: Result, capture: str) -> Table:
    pairs: list[Any] = [pair for _, batch in result.captured(capture) for pair in batch]
    return dict(pairs)


def expected(file: Path) -> Findings:
    """The same findings by other means."""
    flights = pl.read_parquet(file)
    arrived = flights.filter(pl.col("arr_delay").is_not_null())
    totals = (pl.len(), pl.sum("late"), pl.sum("arr_delay"), pl.max("arr_delay").alias("worst"))
    stranded = flights.filter(pl.col("arr_delay").is_null()).group_by("carrier").len()
    causes, knock_on = chains(arrived)
    return Findings(
        carriers={row[0]: row[1:] for row in arrived.group_by("carrier").agg(totals).iter_rows()},
        routes={row[0]: row[1:] for row in arrived.group_by("route").agg(totals).iter_rows()},
        stranded=dict(stranded.iter_rows()),
        causes=causes,
        knock_on=knock_on,
        history=quartiles(arrived),
    )


def quartiles(arrived: pl.DataFrame) -> Table:
    """By week and route, of all flights until the end of the week: a quantile is the least delay that so many do not exceed."""
    found: dict[tuple[int, str], tuple[int, ...]] = {}
    for week in arrived.select(pl.col("hour") // WEEK)["hour"].unique():
        upto = arrived.filter(pl.col("hour") < (week + 1) * WEEK).sort("arr_delay")
        delays = pl.col("arr_delay")
        table = upto.group_by("route").agg(
            pl.len(),
            pl.sum("late"),
            delays.get((pl.len() + 1) // 2 - 1).alias("median"),
            delays.get((3 * pl.len() + 3) // 4 - 1).alias("upper"),
        )
        found.update(((week, row[0]), row[1:]) for row in table.iter_rows())
    return found


def chains(arrived: pl.DataFrame) -> tuple[Table, Table]:
    """Causes and knock-on delays: the components of the graph whose edges join a late flight to the late one before."""
    one_day = ("tailnum", "day")
    late = (
        arrived.sort("flight")
        .with_columns(
            before=pl.col("flight").shift().over(one_day),
            was_late=(pl.col("late").shift().over(one_day) == 1).fill_null(False),
        )
        .filter(pl.col("late") == 1)
    )
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(
        (flight, {"minutes": minutes}) for flight, minutes in late.select("flight", "arr_delay").rows()
    )
    graph.add_edges_from(late.filter("was_late").select("before", "flight").rows())
    firsts = [flight for flight, edges in graph.in_degree() if edges == 0]
    hops = {flight: depth for depth, layer in enumerate(nx.bfs_layers(graph, firsts)) for flight in layer}
    causes: dict[int, tuple[int, int]] = {}
    knock_on: dict[int, tuple[int, int]] = {}
    for chain in nx.weakly_connected_components(graph):
        (cause,) = (flight for flight in chain if hops[flight] == 0)
        causes.update((flight, (cause, hops[flight])) for flight in chain)
        knock_on[cause] = (len(chain), sum(graph.nodes[flight]["minutes"] for flight in chain))
    return causes, knock_on


def compare(found: Findings, file: Path) -> list[str]:
    """Every difference between `found` and what is expected, as a line to read; none if all is right."""
    right = expected(file)
    return [
        f"{field.name} {key}: found {got.get(key, 'nothing')}, expected {want.get(key, 'nothing')}"
        for field in fields(Findings)
        if (got := getattr(found, field.name)) != (want := getattr(right, field.name))
        for key in sorted({*got, *want})
        if got.get(key) != want.get(key)
    ]


def outputs(result: Result) -> dict[str, dict[Time, Counter[Any]]]:
    """All that came out: of each capture, the rows at each time, and how often each."""
    found: dict[str, dict[Time, Counter[Any]]] = {}
    for capture in CAPTURES:
        times = found[capture] = defaultdict(Counter)
        for time, batch in result.captured(capture):
            times[time].update(_rows(batch))
    return found


def differences(result: Result, reference: Result) -> list[str]:
    """Every time at which one run put out other rows than the other, as a line to read; none if they are equal."""
    got, want = outputs(result), outputs(reference)
    return [
        f"{capture}, hour {time[0]}: {(mine - other).total():,} rows too many, {(other - mine).total():,} missing"
        for capture in CAPTURES
        for time in sorted({*got[capture], *want[capture]})
        if (mine := got[capture][time]) != (other := want[capture][time])
    ]
