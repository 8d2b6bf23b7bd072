"""The output of Spark's processes, as it is shown and kept."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

import falkirk
from libraries import spark
from libraries.spark.daemon.output import LINES_AT_ONCE, ProcessOutput


def test_lines_are_shown_whole_and_once_without_what_java_says_of_itself() -> None:
    printed = ProcessOutput()
    printed.add(b"one\ntw")
    assert printed.take() == "one"
    printed.add("o Ω\nWARNING: sun.misc.Unsafe::allocateMemory\nERROR bad\n\tat a.b.C\n\t... 12 more\n\n".encode())
    assert printed.take() == "two Ω\nERROR bad"
    assert printed.take() == ""
    assert "\tat a.b.C" in printed.last_lines.splitlines()


def test_however_much_is_printed_little_is_shown_and_kept() -> None:
    printed = ProcessOutput()
    for number in range(100_000):
        printed.add(b"%d\n" % number)
    lines = printed.take().splitlines()
    assert lines == [*map(str, range(LINES_AT_ONCE)), f"... and {100_000 - LINES_AT_ONCE} more lines"]
    printed.add(b"x" * 1_000_000)
    printed.add(b"\n")
    assert len(printed.take()) < 10_000
    assert len(printed.last_lines) < 100_000
    assert "99999" in printed.last_lines


@pytest.mark.spark
@pytest.mark.soak
def test_address_of_sparks_page_is_told_once(tmp_path: Path) -> None:
    notes: list[str] = []
    options = spark.SparkOptions(config={"spark.ui.enabled": "true", "spark.ui.port": "0"})  # type: ignore[arg-type]

    def build() -> falkirk.Dataflow:
        flow = falkirk.Dataflow("pages")
        rows = flow.columns("rows", falkirk.Batches([pl.DataFrame({"n": [1]})] * 3))
        spark.batch(rows, "select * from input", options=options).capture("out")
        return flow

    falkirk.run(build, store=tmp_path / "store", on_note=notes.append)
    assert len([note for note in notes if re.search(r"Spark's own page is at http://127\.0\.0\.1:\d+", note)]) == 1
