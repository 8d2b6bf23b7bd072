"""The compiler: from a dataflow graph to SQL views, before Spark starts.

Rows are known in one of three forms: as a view; as a source of which nothing but functions of whole batches came yet, which run
in the tasks that read it; and as a view with such functions behind it, which run in the tasks that hand its rows over.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeAlias

import polars as pl

from libraries.columns.agg import Aggregate
from libraries.columns.operators.joins.joining import LEFT, RIGHT
from libraries.columns.operators.windows import START
from libraries.columns.schemas import inference as schemas
from libraries.columns.verbs.descriptions import Join, Split, Times, Totals, Windows, WindowTotals
from libraries.spark.dataflow.partitioned_query import PartitionedQuery
from libraries.spark.engine import joins, totals, windows
from libraries.spark.engine.expressions import mask_of, query_of
from libraries.spark.engine.piped import Piped
from libraries.spark.engine.refused import Refused
from libraries.spark.engine.totals import Continued
from libraries.spark.engine.types import EPOCH, listed, quoted, spark_type
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.graph import Graph, Node, Output
from timely.errors import GraphError
from timely.io.interface import source_repeats
from timely.operators.stateless import Stage
from timely.operators.watermark import LATE, ON_TIME, WATERMARKS

OUT = ("capture", "sink")
"""Kinds of output nodes."""

_NAMED = re.compile(r"\brows_\d+\b")
"""Views named in a query."""

_STAY = ("exchange", "gather", "broadcast")
"""Repartitioning verbs, without effect on the one worker here."""


@dataclass(frozen=True, slots=True)
class View:
    """SQL view of rows: their epoch, and these columns."""

    name: str
    schema: pl.Schema


@dataclass(frozen=True, slots=True)
class StagedBatches:
    """Batches of a source (`of` a node) or of a view, behind some stages."""

    of: Node | View
    stages: tuple[Stage, ...] = ()


Rows: TypeAlias = View | StagedBatches


@dataclass(frozen=True, slots=True)
class QueryView:
    """View defined by a query over earlier views."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class StateView:
    """View of a verb's state: `first` before any micro-batch, `after` the current one."""

    name: str
    first: str
    after: str
    verb: str


@dataclass(frozen=True, slots=True)
class BatchView:
    """View of batches made in Spark's tasks by functions, from a source or view `of`."""

    name: str
    piped: Piped
    of: str | None
    schema: pl.Schema


@dataclass(frozen=True, slots=True)
class Handed:
    """Output batches of a capture or a sink."""

    node: Node
    piped: Piped
    of: str | None


@dataclass(frozen=True, slots=True)
class Compiled:
    """Compiled program: views, each over earlier ones, and outputs."""

    views: tuple[QueryView | BatchView | StateView, ...]
    handed: tuple[Handed, ...]
    """Outputs, one for each capture and sink, in the order of the graph."""
    shared: frozenset[str]
    """Views read several times, worth caching."""
    streamed: str | None = None
    """View of the micro-batch, for a program over a stream."""


def compile_for_spark(flow: Dataflow, stream: Streamed | None = None) -> Compiled:
    """Compile a program to views; with a `stream`, to views of one micro-batch.

    Raises:
        GraphError: for the first thing that Spark cannot do so that the answer is the same, with its name and the user's line.
    """
    return _Compiler(flow.graph, stream).compiled()


@dataclass(frozen=True, slots=True)
class Streamed:
    """Source of a streaming program, with its columns."""

    node: Node
    schema: pl.Schema


class _Compiler:
    def __init__(self, graph: Graph, stream: Streamed | None) -> None:
        self._stream = stream
        self._streamed: View | None = None
        self._graph = graph
        self._incoming = graph.incoming()
        self._names = (f"rows_{number}" for number in count(1))
        self._states = (f"state_{number}" for number in count(1))
        self._rows: dict[Output, Rows] = {}
        self._seen: dict[Output, View] = {}
        self._views: list[QueryView | BatchView | StateView] = []
        self._handed: list[Handed] = []

    def compiled(self) -> Compiled:
        for node in self._graph.nodes:
            try:
                self._add(node)
            except Refused as why:
                raise GraphError(f'{node.site}: {_named(node)}: the engine "spark" does not have {why}') from why
            except pl.exceptions.PolarsError as error:
                raise GraphError(f"{node.site}: {_named(node)}: {schemas.error_text(error)}") from error
            except GraphError as error:  # of columns that were not known when the program was built
                raise GraphError(f"{node.site}: {_named(node)}: {str(error).partition(': ')[2]}") from error
        shared = _read_often(self._views, self._handed)
        streamed = None if self._streamed is None else self._streamed.name
        return Compiled(tuple(self._views), tuple(self._handed), shared, streamed)

    def _add(self, node: Node) -> None:
        if node.require is not None:
            raise Refused(f"a promise under failures: require={node.require!r} needs Falkirk's workers, and a store")
        if node.kind == "source":
            assert node.source is not None
            if self._stream is not None:
                self._rows[Output(node.index)] = self._micro_batches(node, self._stream)
                return
            if not source_repeats(node.source):
                raise Refused(
                    f"sources that can be read only once, as {type(node.source).__name__} is: Spark may read again"
                )
            if isinstance(node.source, PartitionedQuery):
                raise Refused("spark.source(per_epoch=...): without it, all rows are one epoch")
            self._rows[Output(node.index)] = StagedBatches(node)
        elif node.stages:
            (stage,) = node.stages
            self._rows[Output(node.index)] = self._staged(node, stage)
        elif node.kind in OUT:
            self._handed.append(self._out(node, self._input(node)))
        elif node.kind == "gate":
            self._rows[Output(node.index)] = self._input(node)
        elif node.verb is not None:
            self._verb(node)
        elif node.kind != "probe":
            raise Refused(f"{_WHAT.get(node.kind, node.kind)}: it runs on Falkirk's workers, without --engine")

    def _micro_batches(self, node: Node, stream: Streamed) -> View:
        if node.index != stream.node.index:
            raise Refused(
                f"sources beside the stream {stream.node.name!r}: Spark does not say which epoch is with which"
            )
        if EPOCH in stream.schema:
            raise Refused(f"a column of the name {EPOCH!r}")
        self._streamed = View(next(self._names), _checked(stream.schema, node))
        return self._streamed

    # ------------------------------------------------------------------------------------------ forms of rows

    def _input(self, node: Node, port: int = 0) -> Rows:
        """Rows at an input port; a union of several streams."""
        outputs = [edge.source for edge in self._incoming[node.index] if edge.target.port == port]
        if len(outputs) == 1:
            return self._rows[outputs[0]]
        views = [self._view(output) for output in outputs]
        columns = listed(*map(quoted, (EPOCH, *views[0].schema)))
        for view in views:
            if dict(view.schema) != dict(views[0].schema):
                raise Refused(f"concat of different columns: {dict(views[0].schema)} and {dict(view.schema)}")
        return self._query(" union all ".join(f"select {columns} from {view.name}" for view in views), views[0].schema)

    def _view(self, output: Output) -> View:
        """Rows of an output as a view, made once."""
        if output not in self._seen:
            self._seen[output] = self._as_view(self._rows[output], self._graph.schema_of(output))
        return self._seen[output]

    def _view_of(self, node: Node, port: int = 0) -> View:
        outputs = [edge.source for edge in self._incoming[node.index] if edge.target.port == port]
        if len(outputs) == 1:
            return self._view(outputs[0])
        rows = self._input(node, port)
        assert isinstance(rows, View)
        return rows

    def _as_view(self, rows: Rows, schema: pl.Schema | None) -> View:
        if isinstance(rows, View):
            return rows
        piped, of = _piped(rows), rows.of
        if schema is None and isinstance(of, Node):
            schema = piped.schema()
        if schema is None:
            what = rows.stages[-1] if rows.stages else of
            assert not isinstance(what, View)
            raise Refused(
                f"verbs of columns behind {_named(what)} ({what.site}), whose columns are not known: say to_columns(schema)"
            )
        if EPOCH in schema:
            raise Refused(f"a column of the name {EPOCH!r}")
        for name, kind in schema.items():
            _check_type(name, kind)
        view = View(next(self._names), schema)
        self._views.append(BatchView(view.name, piped, of.name if isinstance(of, View) else None, schema))
        return view

    def _query(self, sql: str, schema: pl.Schema) -> View:
        view = View(next(self._names), schema)
        self._views.append(QueryView(view.name, sql))
        return view

    def _out(self, node: Node, rows: Rows) -> Handed:
        batches = StagedBatches(rows) if isinstance(rows, View) else rows
        of = batches.of
        return Handed(node, _piped(batches), of.name if isinstance(of, View) else None)

    # ------------------------------------------------------------------------------------------ verbs

    def _staged(self, node: Node, stage: Stage) -> Rows:
        if stage.plan is not None:
            of = self._view_of(node)
            return self._query(*query_of(stage.plan, of.name, of.schema))
        rows = self._input(node)
        if isinstance(rows, StagedBatches):
            return replace(rows, stages=(*rows.stages, stage))
        return rows if stage.kind in _STAY else StagedBatches(rows, (stage,))

    def _verb(self, node: Node) -> None:
        where = f"{_named(node)} ({node.site})"
        match node.verb:
            case Totals(keys, aggregates, over):
                of = self._view_of(node)
                given = _given(aggregates)
                made = _checked(schemas.aggregated("agg", keys, given, of.schema), node)
                if over == "scope" and self._stream is not None:
                    state = next(self._states)
                    self._continue(node, state, totals.continued(of.name, state, of.schema, keys, given, where), made)
                else:
                    self._put(node, totals.totals(of.name, of.schema, keys, given, over == "scope", where), made)
            case Split(predicate):
                of = self._view_of(node)
                mask = f"coalesce({mask_of(predicate, of.schema)}, false)"
                self._put(node, f"select * from {of.name} where {mask}", of.schema)
                self._put(node, f"select * from {of.name} where not {mask}", of.schema, 1)
            case Join(on, how, over, changes):
                self._join(node, on, how, over == "scope", changes)
            case Times(column):
                of = self._view_of(node)
                self._rows[Output(node.index)] = of
                self._put(node, windows.greatest(of.name, column, of.schema, where), pl.Schema(), 1)
            case Windows(column, length, every, allowed):
                of, marks = self._view_of(node), self._view_of(node, 1)
                if self._stream is None:
                    marks = self._put(node, windows.watermarks(marks.name, allowed), pl.Schema(), WATERMARKS)
                else:
                    state = next(self._states)
                    continued = windows.watermarks_continued(marks.name, state, allowed)
                    marks = self._continue(node, state, continued, pl.Schema(), WATERMARKS)
                judged = windows.Judged(of.name, marks.name, of.schema, column, length, every, where)
                kind = windows.window_type(of.schema[column])
                self._put(node, judged.on_time(kind), pl.Schema({**of.schema, START: kind}), ON_TIME)
                self._put(node, judged.late(), of.schema, LATE)
            case WindowTotals(keys, aggregates, length):
                of, marks, given = self._view_of(node), self._view_of(node, 1), _given(aggregates)
                made = _checked(schemas.aggregated("agg", [START, *keys], given, of.schema), node)
                types = {key: made[key] for key in keys} | {"start": of.schema[START], "end": of.schema[START]}
                columns = pl.Schema(types | {name: made[name] for name in aggregates})
                given_to = of.schema, keys, given, length, where
                if self._stream is None:
                    self._put(node, windows.windows(of.name, marks.name, *given_to), columns)
                else:
                    state = next(self._states)
                    self._continue(
                        node, state, windows.windows_continued(of.name, marks.name, state, *given_to), columns
                    )

    def _join(self, node: Node, on: Sequence[str], how: str, running: bool, changes: bool) -> None:
        if changes:
            raise Refused("joins that take rows back (changes=True)")
        left, right = self._view_of(node, LEFT), self._view_of(node, RIGHT)
        made = _checked(schemas.joined(how, on, left.schema, right.schema), node)
        given = left.name, right.name, (left.schema, right.schema), on, how
        if not (running and self._stream is not None):
            self._put(node, joins.join(*given, running), made)
            return
        states = next(self._states), next(self._states)
        sql, kept = joins.continued(*given, states)
        for state, (first, after) in kept.items():
            self._views.append(StateView(state, first, after, str(node)))
        self._put(node, sql, made)

    def _continue(self, node: Node, state: str, made: Continued, schema: pl.Schema, port: int = 0) -> View:
        """Add a view over a micro-batch and a state."""
        self._views.append(StateView(state, made.first, made.after, str(node)))
        return self._put(node, made.sql, schema, port)

    def _put(self, node: Node, sql: str, schema: pl.Schema, port: int = 0) -> View:
        view = self._rows[Output(node.index, port)] = self._query(sql, schema)
        return view


_WHAT = {
    "feedback": "loops",
    "enter": "scopes",
    "leave": "scopes",
    "input": "inputs that are fed by hand",
    "unary": "operators of your own, and regions on Spark",
    "binary": "operators of your own",
    "sort": "an order within a time",
    "join_asof": "joins on the nearest row",
    "join_interval": "joins on intervals",
    "lateness": "sessions, split_late and interval joins",
    "aggregate": "a time to live (ttl=)",
    "distinct": "distinct of records, or with a time to live (ttl=)",
    "event_times": "windows of pairs",
}
"""Names of node kinds in error messages."""


def _read_often(views: Sequence[QueryView | BatchView | StateView], handed: Sequence[Handed]) -> frozenset[str]:
    """Names of views of Python batches with more than one reader."""
    wanted = Counter(each.of for each in handed if each.of is not None)
    for view in views:
        if isinstance(view, StateView):
            wanted.update(_NAMED.findall(view.after))
    for view in reversed(views):
        if not isinstance(view, StateView):
            below = filter(None, [view.of]) if isinstance(view, BatchView) else _NAMED.findall(view.sql)
            for name in below:
                wanted[name] += wanted[view.name]
    return frozenset(view.name for view in views if isinstance(view, BatchView) and wanted[view.name] > 1)


def _piped(rows: StagedBatches) -> Piped:
    if isinstance(rows.of, View):
        return Piped.behind(rows.of.schema, rows.stages)
    assert rows.of.source is not None
    return Piped.of_source(rows.of.source, str(rows.of), rows.stages)


def _named(node: Node | Stage) -> str:
    return f"{node.kind} {node.name!r}"


def _given(aggregates: Mapping[str, Aggregate | pl.Expr]) -> dict[str, Aggregate]:
    given: dict[str, Aggregate] = {}
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate) or aggregate.kind not in ("count", "sum", "min", "max", "mean"):
            raise Refused(f"agg({name}={aggregate}): say agg.count(), sum, min, max or mean")
        given[name] = aggregate
    return given


def _checked(schema: pl.Schema | None, node: Node) -> pl.Schema:
    if schema is None:
        raise Refused(f"the types of the columns of {_named(node)}")
    for name, kind in schema.items():
        _check_type(name, kind)
    return schema


def _check_type(name: str, kind: pl.DataType) -> None:
    try:
        spark_type(kind)
    except Refused as why:
        raise Refused(f"{why}, of column {name!r}") from why
