"""The tables that commands print: no word is clipped, however narrow the terminal is."""

from __future__ import annotations

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console as Terminal
from rich.text import Text

from falkirk.bench import BENCHES, command
from falkirk.bench.harness import Row
from falkirk.graph_view import picture
from falkirk.progress_view import LiveDisplay, Meter
from falkirk.tables import print_table
from falkirk.what_if_view import Predicted, show
from libraries.columns.verbs.dataflow import Dataflow
from runtime.control import Stats
from timely.io import Console, Iterable

WIDTHS = [40, 60, 80, 120]


def console_of(width: int) -> Terminal:
    return Terminal(file=io.StringIO(), width=width, highlight=False, color_system=None)


def text_of(console: Terminal) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def check(text: str, width: int, words: list[str]) -> None:
    """All words are there, whole, and no line is longer than the terminal."""
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width, text
    found = text.split()
    for word in words:
        assert word in found or f"{word}:" in found, f"{word} in:\n{text}"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", BENCHES)
def test_figures_of_every_benchmark(name: str, width: int) -> None:
    bench = BENCHES[name]
    rows = [
        Row(name, system, workers, 1234567.8, bench.unit, 3, 1034567.1, 2234567.9, 9934567.2, size=10)
        for system in sorted({"falkirk", *(variant.system for variant in bench.variants)})
        for workers in (1, 2)
    ]
    console = console_of(width)
    command.show(console, bench, rows)
    unit = "M/s" if bench.unit == "records/s" else bench.unit
    check(
        text_of(console), width, [*unit.split(), "workers", "median", "runs", *(row.system.split()[0] for row in rows)]
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_answers_of_whatif(width: int) -> None:
    names = ["words", "a-name-that-is-long-but-not-too-long", "counts"]
    operators = [{"name": name, "region": "front", "policy": "Lazy(every=1.0)"} for name in names]
    processors = [
        {"operator": number, "worker": worker, "keeps": worker == 1, "to": [1234567]}
        for number in range(3)
        for worker in (0, 1)
    ]
    workers = [
        {"worker": 0, "to": [1234567], "failed": True},
        {"worker": 1, "to": None, "failed": False},
    ]
    answer = {
        "processors": processors,
        "workers": workers,
        "resent": [],
        "redone": {"records": 10**9, "epochs": 10**6, "seconds": 12.5},
    }
    console = console_of(width)
    show(Predicted(operators, answer, True), ["worker:1"], console)
    check(text_of(console), width, [*names, "front", "Lazy(every=1.0)", "region", "policy"])


@pytest.mark.parametrize("width", WIDTHS)
def test_picture_of_a_graph(width: int) -> None:
    flow = Dataflow("drawn")
    with flow.region("front-of-the-flow"):
        numbers = flow.source("numbers-of-today", Iterable([1]))
    inner = numbers.enter(flow.scope("a-scope"))
    inner.key_by(abs, name="by-size").count(name="how-often").records().leave().to(Console(), name="shown")
    console = console_of(width)
    for part in picture(flow.graph, True, width):
        console.print(part, soft_wrap=isinstance(part, Text))
    text = text_of(console)
    assert "…" not in text
    assert "..." not in text
    assert {"numbers-of-today", "front-of-the-flow", "how-often", "Iterable"} <= set(text.replace(":", " ").split())


@pytest.mark.parametrize("width", [20, *WIDTHS])
def test_live_view_of_workers_leaves_columns_out_rather_than_clip_them(width: int) -> None:
    meter = Meter(0.0)
    meter.observe({worker: Stats(10**9 + worker, 10**8, 10**6, 10**6, 2**30) for worker in range(12)}, 1.0)
    console = console_of(width)
    view = LiveDisplay(console, meter, lambda: 2.0, "app.py", 12)
    console.print(view._table(meter.reading(2.0)))
    assert "…" not in text_of(console)
    assert ("queued" in text_of(console)) is (width >= 100)
    assert "records/s" in text_of(console)


@example(41, ["", "", "aaaaaaaaa ", ""], [["xxxxx", "xxxxxxxxxxx", "x", "xxxxxxxxxx", ""]])
@given(
    st.integers(10, 100),
    st.lists(st.text("abc .-/日", max_size=30), min_size=1, max_size=5),
    st.lists(st.lists(st.text("xyz .-/é日", max_size=40), min_size=5, max_size=5), max_size=4),
)
def test_no_character_of_any_table_is_lost(width: int, headers: list[str], rows: list[list[str]]) -> None:
    rows = [row[: len(headers)] for row in rows]
    console = console_of(width)
    print_table(console, headers, rows)
    shown = "".join(text_of(console).split())
    for row in rows:
        for cell in row:
            assert set(cell) - {" "} <= set(shown)
    assert sum(map(shown.count, "xyz")) == sum("".join(row).count(letter) for row in rows for letter in "xyz")
