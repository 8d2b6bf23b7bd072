"""The table of docs/columns.md has each verb of columns, and the default of its `over`; which is one for all verbs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import falkirk

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "columns.md").read_text()
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| ")]
TABLE = ROWS[: next(n for n, row in enumerate(ROWS) if row[0].strip() == "`how=`")]


def verbs(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The verbs that a class has of its own."""
    yield from (
        (name, each) for name, each in vars(kind).items() if not name.startswith("_") and inspect.isfunction(each)
    )


OF_COLUMNS = dict(pair for kind in (falkirk.Columns, falkirk.GroupBy, falkirk.WindowedColumns) for pair in verbs(kind))


@pytest.mark.parametrize("kind", [falkirk.Columns, falkirk.GroupBy, falkirk.WindowedColumns])
def test_table_has_each_verb(kind: type) -> None:
    named = {name for row in TABLE for name in re.findall(r"`(\w+)`", row[0])}
    assert {name for name, _ in verbs(kind)} <= named


def test_table_says_the_default_first() -> None:
    said: dict[str, str] = {}
    for first, over, *_ in TABLE[1:]:
        for name in re.findall(r"`(\w+)`", first):
            said.setdefault(name, over.strip(" `"))
    for name in OF_COLUMNS.keys() & said.keys() - {"agg", "group_by"}:  # which are of windows, too, and have none there
        default = inspect.signature(OF_COLUMNS[name]).parameters.get("over")
        assert said[name] == ("" if default is None else f'"{default.default}"'), name
    assert said["agg"] == '"scope"'


def test_a_verb_runs_on_if_nothing_is_said() -> None:
    kinds = (falkirk.Stream, falkirk.Keyed, falkirk.Changes, falkirk.Columns, falkirk.GroupBy)
    found = [*((name, each) for kind in kinds for name, each in verbs(kind)), ("sql", falkirk.sql)]
    defaults = {
        name: inspect.signature(each).parameters["over"].default
        for name, each in found
        if "over" in inspect.signature(each).parameters
    }
    assert {"agg", "count", "distinct", "join", "join_asof", "sql", "sum", "top_k"} <= defaults.keys()
    assert set(defaults.values()) == {"scope"}
