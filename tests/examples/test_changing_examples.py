"""Examples over collections that change, against networkx and Polars after each change."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import networkx as nx
import polars as pl
import pytest

from runtime.program import Program
from runtime.run import run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLACES = ["York", "Leeds", "Hull", "Hexham", "Ely", "Bath"]


def minutes(roads: nx.Graph, start: str, end: str) -> int | None:
    if start == end:
        return 0
    if start in roads and end in roads and nx.has_path(roads, start, end):
        return int(nx.dijkstra_path_length(roads, start, end))
    return None


@pytest.mark.parametrize("seed", range(3))
def test_routes_says_what_networkx_says_when_asked_and_whenever_it_changes(seed: int) -> None:
    answers: Callable[[Iterator[str]], Iterator[str]] = runpy.run_path(str(EXAMPLES / "routes.py"))["answers"]
    random, roads = Random(seed), nx.Graph()
    told: dict[tuple[str, str], int | None] = {}
    expected: list[str] = []

    def commands() -> Iterator[str]:
        for _ in range(60):
            a, b = random.sample(PLACES, 2)
            match random.choice(("road", "road", "close", "ask", "forget")):
                case "road":
                    roads.add_edge(a, b, weight=random.randrange(1, 9))
                    command = f"road {a} {b} {roads[a][b]['weight']}"
                case "close":
                    roads.remove_edges_from([(a, b)])
                    command = f"close {a} {b}"
                case "ask":
                    command = f"ask {a} {b}"
                    told.setdefault((a, b), -1)
                case _:
                    command = f"forget {a} {b}"
                    told.pop((a, b), None)
            for (start, end), before in sorted(told.items()):
                now = told[start, end] = minutes(roads, start, end)
                if now != before:
                    expected.append(f"{start} to {end}: " + ("no way" if now is None else f"{now} minutes"))
            yield command

    assert list(answers(commands())) == expected
    assert len(expected) > 10


def test_routes_says_what_is_no_command_and_goes_on() -> None:
    answers = runpy.run_path(str(EXAMPLES / "routes.py"))["answers"]
    said = list(answers(["road York Leeds soon", "", "hello", "ask York York"]))
    usage = "? road A B MINUTES, close A B, ask A B, or forget A B"
    assert said == [usage, usage, "York to York: 0 minutes"]


@pytest.mark.parametrize("workers", [1, 2])
def test_trades_are_compared_with_the_last_quote_before_them_as_polars_does(
    workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    example = EXAMPLES / "trades.py"
    run(Program(path=str(example), args={"trades": 60, "corrections": 12}), workers)
    told: Counter[str] = Counter()
    lines: dict[int, list[str]] = {}
    for each in capfd.readouterr().out.splitlines():
        epoch, change = each.split(": ", 1)
        lines.setdefault(int(epoch), []).append(change)
    assert max(lines) > 0, "a correction changes something"

    market: list[list[tuple[Any, int]]] = runpy.run_path(str(example))["market"](60, 12, 1)
    there: Counter[Any] = Counter()
    for epoch, changes in enumerate(market):
        for event, by in changes:
            there[event] += by
        for change in lines.get(epoch, []):
            by, fact = change.split(" ", 1)
            told[fact] += int(by)
        assert {fact for fact, times in told.items() if times} == worst([event for event in there if there[event]])


def worst(events: list[Any]) -> set[str]:
    """The facts, by Polars: the quote of a second with the greatest number is the last one."""
    frame = pl.DataFrame(
        [(symbol, *event) for symbol, event in events], ["symbol", "second", "kind", "number", "price"], orient="row"
    ).sort("second", "number")
    quotes = frame.filter(pl.col("kind") == 0).select("symbol", "second", asked="price")
    trades = frame.filter(pl.col("kind") == 1).sort("second")
    paid = trades.join_asof(quotes, on="second", by="symbol", check_sortedness=False).drop_nulls("asked")
    paid = paid.with_columns(minute=pl.col("second") // 60, beyond=pl.col("price") - pl.col("asked"))
    top = paid.sort("beyond", "symbol", "number", descending=True).group_by("minute").head(3)
    return {
        f"minute {row['minute']}: trade {row['number']} of {row['symbol']} paid {row['beyond']:+d}"
        for row in top.iter_rows(named=True)
    }
