"""Demands of a program on its outputs: what is promised is enough, or the program is refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import FileSink
from recovery.guarantees.demands import check_demands
from recovery.guarantees.promises import promises
from timely.errors import GraphError
from timely.io import Callback, Iterable


def check(sink: Any, require: str | None) -> None:
    """Dice behind a steady source, into a sink that requires a grade, beside an output that requires none."""
    flow = Dataflow()
    stream = flow.source("in", Iterable([1])).map(str, name="dice").nondeterministic("it rolls dice")
    stream.capture("before")
    stream.to(sink, name="out", require=require)
    check_demands(flow.graph, promises(flow.graph))


def test_an_output_may_require_what_is_promised_or_less_or_nothing() -> None:
    for grade in ("precise", "repeating", "gap", None):
        check(FileSink("folder"), grade)
    for grade in ("divergent", "gap", None):
        check(Callback(print), grade)


def test_an_output_that_requires_more_is_refused_and_the_weightiest_cause_is_named() -> None:
    with pytest.raises(
        GraphError, match=r"requires repeating, .* no more than divergent, for map 'dice' \(.*rolls dice"
    ):
        check(Callback(print), "repeating")


def test_an_output_that_requires_no_grade_is_told_of_all_the_best_first() -> None:
    grades = "precise, repeating, convergent, divergent, gap"
    with pytest.raises(GraphError, match=f"requires 'exact'; it must be one of {grades}$"):
        check(FileSink("folder"), "exact")
