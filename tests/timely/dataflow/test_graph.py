"""Building a dataflow: what is refused, with which words, and what the graph says of itself afterwards."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from libraries.columns import agg
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Lazy
from runtime.run import run
from timely.dataflow.fingerprint import differences, fingerprint, outline
from timely.dataflow.graph import Input, Output
from timely.dataflow.plan import compile_plan
from timely.errors import FalkirkError, GraphError
from timely.io import Iterable, Memory
from timely.operators.base import Operator
from timely.operators.channels import Exchange

HERE = Path(__file__).name


def here() -> int:
    """The line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def two_streams() -> tuple[Any, Any]:
    return Dataflow("one").input("a"), Dataflow("two").input("b")


def enter_skipping_a_scope() -> None:
    flow = Dataflow()
    outer = flow.scope("outer")
    flow.input("a").enter(flow.scope("inner", outer))


def feedback_in_the_wrong_scope() -> None:
    flow = Dataflow()
    one, two = flow.scope("one"), flow.scope("two")
    loop, _ = flow.feedback(one)
    flow.input("a").enter(two).connect_loop(loop)


def feedback_of_another_dataflow() -> None:
    one, two = Dataflow("one"), Dataflow("two")
    loop, _ = one.feedback(one.scope("s"))
    two.input("a").enter(two.scope("s")).connect_loop(loop)


def feedback_connected_twice() -> None:
    flow = Dataflow()
    scope = flow.scope("s")
    loop, _ = flow.feedback(scope)
    entered = flow.input("a").enter(scope)
    entered.connect_loop(loop)
    entered.connect_loop(loop)


def region_twice() -> None:
    flow = Dataflow()
    with flow.region("front"):
        flow.input("a")
    with flow.region("front"):
        flow.input("b")


def scope_twice() -> None:
    flow = Dataflow()
    flow.scope("s")
    flow.scope("s")


REFUSED: list[tuple[str, Callable[[], Any]]] = [
    ("map takes a function, not 3", lambda: Dataflow().input("a").map(3)),  # type: ignore[arg-type]
    ("filter takes a function", lambda: Dataflow().input("a").filter(None)),  # type: ignore[arg-type]
    ("flat_map takes a function", lambda: Dataflow().input("a").flat_map([])),  # type: ignore[arg-type]
    ("inspect takes a function", lambda: Dataflow().input("a").inspect("x")),  # type: ignore[arg-type]
    ("branch takes a function", lambda: Dataflow().input("a").branch(1)),  # type: ignore[arg-type]
    ("attempt takes a function", lambda: Dataflow().input("a").attempt("int")),  # type: ignore[arg-type]
    ("key_by takes a function", lambda: Dataflow().input("a").key_by("name")),  # type: ignore[arg-type]
    ("exchange takes a function", lambda: Dataflow().input("a").exchange(1)),  # type: ignore[arg-type]
    ("map_batches takes a function", lambda: Dataflow().input("a").map_batches(None)),  # type: ignore[arg-type]
    ("iterate takes a function", lambda: Dataflow().input("a").iterate(None)),  # type: ignore[arg-type]
    ("reduce takes a function", lambda: Dataflow().input("a").keyed().reduce(0)),  # type: ignore[arg-type]
    ("fold takes a function", lambda: Dataflow().input("a").keyed().fold(0, 1)),  # type: ignore[arg-type]
    ("map_values takes a function", lambda: Dataflow().input("a").keyed().map_values(1)),  # type: ignore[arg-type]
    ("unary takes what makes an operator", lambda: Dataflow().input("a").unary("u", Operator())),  # type: ignore[arg-type]
    ("over is 'time'", lambda: Dataflow().input("a").distinct(over="epoch")),  # type: ignore[arg-type]
    ("over is 'time'", lambda: Dataflow().input("a").keyed().count(over=1)),  # type: ignore[arg-type]
    ("join takes another keyed stream", lambda: Dataflow().input("a").keyed().join(3)),  # type: ignore[arg-type]
    ("takes a source", lambda: Dataflow().source("a", [1, 2])),  # type: ignore[arg-type]
    ("takes a sink", lambda: Dataflow().input("a").to(print)),  # type: ignore[arg-type]
    ("two dataflows", lambda: two_streams()[0].concat(two_streams()[1])),
    ("enter scopes one by one", enter_skipping_a_scope),
    ("made with flow.scope", lambda: Dataflow().input("a").enter("scope")),  # type: ignore[arg-type]
    ("cannot go round the loop", feedback_in_the_wrong_scope),
    ("of another dataflow", feedback_of_another_dataflow),
    ("connected already", feedback_connected_twice),
    ("root scope, which cannot be left", lambda: Dataflow().input("a").leave()),
    ("body of iterate() must return", lambda: Dataflow().input("a").iterate(lambda inner: inner.leave())),
    ("body of iterate() must return", lambda: Dataflow().input("a").iterate(lambda inner: None)),  # type: ignore[arg-type, return-value]
    ("limit is a number of iterations", lambda: Dataflow().input("a").iterate(lambda inner: inner, limit=0)),
    ("a region 'front' already", region_twice),
    ("a scope 's' in the root scope already", scope_twice),
    ("names of columns", lambda: Dataflow().input("a").to_columns().group_by(7)),  # type: ignore[arg-type]
    ("names of columns", lambda: Dataflow().input("a").to_columns().exchange()),
    ("Polars expression", lambda: Dataflow().input("a").to_columns().branch(lambda row: True)),  # type: ignore[arg-type]
    ("something to compute", lambda: Dataflow().input("a").to_columns().group_by("x").agg()),
    (
        "a running total cannot be kept",
        lambda: Dataflow().input("a").to_columns().group_by("x").agg(pl.col("y").sum(), over="scope"),
    ),
    ("outputs 0 to 0, not 1", lambda: Dataflow().input("a").map(str).output(1)),
]


@pytest.mark.parametrize(("words", "build"), REFUSED, ids=[f"{i}-{words[:30]}" for i, (words, _) in enumerate(REFUSED)])
def test_a_wrong_program_is_refused_where_it_is_written(words: str, build: Callable[[], Any]) -> None:
    with pytest.raises(GraphError, match=re.escape(words)) as caught:
        build()
    assert re.search(rf"{HERE}:\d+", str(caught.value)), "the error does not name the user's line"


def test_a_refusal_names_the_very_line() -> None:
    stream = Dataflow().input("a")
    line = here() + 2
    with pytest.raises(GraphError) as caught:
        stream.map("no function")  # type: ignore[arg-type]
    assert f"{HERE}:{line}:" in str(caught.value)


def test_a_name_used_twice_names_both_lines() -> None:
    flow = Dataflow()
    first = here() + 1
    stream = flow.input("orders")
    second = here() + 2
    with pytest.raises(GraphError) as caught:
        stream.map(str, name="orders")
    assert f"{HERE}:{first}" in str(caught.value)
    assert f"{HERE}:{second}: the name 'orders' is already that of the input 'orders'" in str(caught.value)


def test_streams_of_different_scopes_do_not_meet() -> None:
    flow = Dataflow()
    stream = flow.input("a")
    inside = stream.enter(flow.scope("sub"))
    for meet in (lambda: stream.concat(inside), lambda: stream.keyed().join(inside.keyed())):
        with pytest.raises(GraphError, match="the root scope with one in sub; their times do not compare"):
            meet()


def test_a_sink_in_a_scope_is_refused() -> None:
    flow = Dataflow()
    with pytest.raises(GraphError, match="in sub: leave\\(\\) first"):
        flow.input("a").enter(flow.scope("sub")).to(Memory())


def test_a_cycle_that_advances_no_time_is_refused_with_its_operators() -> None:
    flow = Dataflow()
    node = flow.graph.add_node("map", flow.graph.root, "ahead", factory=Operator)
    back = flow.graph.add_node("map", flow.graph.root, "back", factory=Operator)
    flow.graph.add_edge(Output(node.index), Input(back.index))
    flow.graph.add_edge(Output(back.index), Input(node.index))
    with pytest.raises(GraphError, match="advances no time") as caught:
        compile_plan(flow.graph)
    assert "'ahead'" in str(caught.value)
    assert "'back'" in str(caught.value)
    assert "iterate()" in str(caught.value)


def test_a_cycle_out_of_a_scope_and_back_is_refused() -> None:
    flow = Dataflow()
    scope = flow.scope("sub")
    outside = flow.input("in").map(abs, name="outside")
    left = outside.enter(scope, name="enter").map(abs).leave(name="leave")
    flow.graph.add_edge(left.outputs[0], Input(flow.graph.node_named("outside").index))
    with pytest.raises(GraphError, match="advances no time") as caught:
        compile_plan(flow.graph)
    assert "scope 'sub'" in str(caught.value)


def test_leaving_a_scope_and_entering_it_again_is_refused() -> None:
    """Its coordinate would fall: what is at (0, 5) would lead to (0, 0) of the same scope."""
    ways: list[Callable[[Any], Any]] = [lambda s: s, lambda s: s.map(abs)]
    for between in ways:
        flow = Dataflow()
        scope = flow.scope("sub")
        between(flow.input("in").enter(scope).map(abs).leave()).enter(scope).map(abs)
        with pytest.raises(GraphError, match="advances no time"):
            compile_plan(flow.graph)


def test_an_open_loop_and_an_empty_dataflow_are_refused() -> None:
    flow = Dataflow("nothing")
    with pytest.raises(GraphError, match="'nothing' has no operators"):
        compile_plan(flow.graph)
    _, again = flow.feedback(flow.scope("s"), name="round")
    again.map(abs)
    with pytest.raises(GraphError, match="nothing is connected to the feedback 'round'"):
        compile_plan(flow.graph)


def test_made_names_give_way_to_given_ones() -> None:
    flow = Dataflow()
    stream = flow.input("map-1").map(abs).map(abs, name="map-3").map(abs).map(abs)
    assert [node.name for node in flow.graph.nodes] == ["map-1", "map-2", "map-3", "map-4", "map-5"]
    with pytest.raises(GraphError, match="is already that of"):
        stream.map(abs, name="map-2")


@pytest.mark.parametrize("first", [True, False])
def test_a_capture_may_have_the_name_of_another_operator(first: bool) -> None:
    flow = Dataflow()
    numbers = flow.source("in", Iterable([1, 2]))
    if first:
        seen = numbers.capture("counts")
        doubled = numbers.map(lambda n: 2 * n, name="counts")
    else:
        doubled = numbers.map(lambda n: 2 * n, name="counts")
        seen = numbers.capture("counts")
    doubled.capture("map-1")
    doubled.map(abs)
    with pytest.raises(GraphError, match="is already that of"):
        doubled.capture("counts")
    result = run(flow)
    assert flow.graph.node_named("counts").kind == "map"
    assert result.captured("counts") == result.captured(seen) == [((0,), [1, 2])]
    assert result.captured("map-1") == [((0,), [2, 4])]
    with pytest.raises(FalkirkError, match="no capture 'nothing'"):
        result.captured("nothing")


def sample(extra: bool = False, by_key: bool = True, region: str = "front") -> Dataflow:
    flow = Dataflow("sample")
    with flow.region(region, policy=Lazy()):
        lines = flow.source("lines", Iterable(["a"])).map(str, name="clean")
    if extra:
        lines = lines.filter(bool, name="some")
    counted = (lines.key_by(lambda x: x) if by_key else lines.map(lambda x: (x, x)).keyed()).count(name="counts")
    counted.records().iterate(lambda inner: inner.filter(lambda kv: False), name="loop").to(Memory(), name="out")
    return flow


def test_a_fingerprint_is_of_structure_and_not_of_code() -> None:
    assert fingerprint(sample().graph) == fingerprint(sample().graph)
    flow, other = Dataflow("x"), Dataflow("y")
    flow.input("a").map(lambda x: x + 1, name="f")
    other.input("a").map(lambda x: x + 2, name="f")
    assert fingerprint(flow.graph) == fingerprint(other.graph)
    assert len({fingerprint(f.graph) for f in (sample(), sample(True), sample(by_key=False), sample(region="r"))}) == 4


def test_a_fingerprint_sees_channels_and_ports() -> None:
    def build(channel: Exchange | None, port: int) -> str:
        flow = Dataflow()
        a, b = flow.input("a"), flow.input("b")
        if channel is None:
            a.map(abs, name="m")
        else:
            a.exchange(abs, name="m")
        (a if port == 0 else b).binary(b if port == 0 else a, "both", Operator)
        return fingerprint(flow.graph)

    assert len({build(None, 0), build(None, 1), build(Exchange(), 0), build(Exchange(), 1)}) == 4


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    program = (
        "from tests.timely.dataflow.test_graph import sample; from timely.dataflow.fingerprint import fingerprint; "
    )
    program += "print(fingerprint(sample().graph))"
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[3],
        env={"PYTHONHASHSEED": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == fingerprint(sample().graph)


def test_differences_say_what_changed() -> None:
    before, after = outline(sample().graph), outline(sample(extra=True, region="back").graph)
    assert differences(before, before) == []
    text = "\n".join(differences(before, after))
    assert "operator 'some' is new" in text
    assert "operator 'clean': its region was 'front' and is 'back'" in text
    assert "operator 'key_by-1': its inputs was" in text
    assert "operator 'some' is gone" in "\n".join(differences(after, before))


def test_a_drawing_shows_scopes_exchanges_and_loops() -> None:
    flow = sample()
    flow.input('say "hi"').to_columns().group_by("x").agg(n=agg.count(), name="per x").probe("seen")
    text = flow.mermaid()
    lines = text.splitlines()
    assert lines[0] == "flowchart LR"
    depth = 0
    for line in lines:
        depth += line.strip().startswith("subgraph")
        depth -= line.strip() == "end"
        assert depth >= 0
    assert depth == 0
    for node in flow.graph.nodes:
        assert len(re.findall(rf"^\s+n{node.index}[\[(]", text, re.MULTILINE)) == 1, node.name
    arrows = [line for line in lines if re.search(r"^\s+n\d+ .*> n\d+$", line)]
    assert len(arrows) == len(flow.graph.edges)
    feedback = flow.graph.node_named("loop-feedback").index
    assert any(line.strip().startswith(f"n{feedback} -.->") for line in arrows)
    assert any('== "exchange by x" ==>' in line for line in arrows)
    inside = text[text.index("subgraph") : text.index("end\n")]
    assert f"n{feedback}[" in inside
    assert "say #quot;hi#quot;" in text
    assert 'say "hi"' not in text
    assert "<pre" in flow._repr_html_()
    assert "&lt;br/&gt;" in flow._repr_html_()


def test_notebooks_are_given_a_drawing_and_texts() -> None:
    flow = Dataflow("shown")
    flow.input("in").map(lambda x: x, name="<b>").capture()
    bundle = flow._repr_mimebundle_()
    assert bundle["text/vnd.mermaid"] == flow.mermaid()
    assert "&lt;b&gt;" in bundle["text/html"]
    assert bundle["text/plain"] == "Dataflow('shown', 3 operators)"
