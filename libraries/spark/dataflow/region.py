"""`batch`: a part of a dataflow run on Spark at each complete epoch."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from libraries.columns.verbs.columns import Columns
from libraries.spark.dataflow.fusing import HandOn, RegionReading, Step
from libraries.spark.dataflow.operators import Compute, Gather, Read, Runner, Spill
from libraries.spark.dataflow.placement import HOME
from libraries.spark.dataflow.views import View, Viewed, take_apart
from libraries.spark.errors import SparkError
from libraries.spark.files.deliveries import Consumer, Deliveries, deliver
from libraries.spark.files.manifest import Calendar, Over
from libraries.spark.files.parquet import carried_schema
from libraries.spark.files.pinned import local_path
from libraries.spark.files.reads import Reads
from libraries.spark.files.schemas import write_schema
from libraries.spark.setup.options import SparkOptions
from recovery.policy import Batch, Every, Lazy, interval
from timely.dataflow.graph import Graph, Input, Output
from timely.errors import GraphError, user_site
from timely.operators.channels import Exchange
from timely.time import INF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def batch(
    inputs: Columns | View | Mapping[str, Columns | View],
    what: Callable[..., DataFrame] | str,
    *,
    every: Every = 1,
    over: Over | Mapping[str, Over] = "new",
    combine: Callable[..., DataFrame] | str | None = None,
    tables: Mapping[str, Any] | None = None,
    schemas: Mapping[str, pa.Schema] | None = None,
    options: SparkOptions | None = None,
    checkpoint: Every = 1.0,
    keep: bool = False,
    name: str | None = None,
    runner: Runner | None = None,
) -> Columns:
    """Run a function or SQL on Spark per complete epoch; a stream of result columns.

    The rows have the time of that epoch.

    The other operators go on meanwhile. Each worker writes its part of the input into Parquet files, Spark reads them, and
    what Spark writes is dealt out among the workers, in files of at most 65,536 rows, where an operator takes it; a region
    or a table is given the files; and where one region alone takes the rows, it may do this one's step as part of its own
    query, and no files are written. What Spark must do again after a failure, and what never, depends on the policy of the
    region around: see docs/spark_regions.md.

    Args:
        inputs: a stream of columns, or a `view`, called "input"; or several by name.
        what: a function from Spark DataFrames (the streams in their order, then `tables` by keyword) to a DataFrame; or SQL,
            in which streams and tables have their names. A function with parameters `epoch` or `attempt` is given these, too.
        every: an int n is every n-th epoch, and a duration (`10.0`, `"5m"`, a timedelta) a period: then an epoch that is
            complete earlier after the last run is left to a later one, and to a last one when all input has ended. "end" is one
            run over everything, when all input has ended.
        over: the rows that a run sees: "new" for those since the last run, "all" for everything so far, n for the last n
            epochs; or one of these for each input, by name, where those that are left out are "new". With a period "new" is not
            possible. There is no run where nothing has come since the last.
        combine: for `over="all"` or n epochs, where results for parts of the rows can be combined to that for all of them, as
            sums can to a sum: a function of, or SQL over, a DataFrame `input` with such results. Then `what` runs over what is
            new only, and `combine` over the results of these runs.
        tables: DataFrames that are there already, by name: a path of Parquet files, a function from a SparkSession to a
            DataFrame, or a small table: of Polars, pandas or Arrow, or a Spark DataFrame of the caller's own, which is copied.
            Of a path, each run has its own list of files, made when its epoch is complete; each attempt at the run reads those.
        schemas: the columns of inputs that may have no rows yet when the others have.
        options: where Spark runs, and what is expected of it.
        checkpoint: how often the list of files is saved: what `every` is to the policy `Lazy`.
        keep: have what comes of it kept in files in any case, so that no failure of a region behind it has it done again.
        name: of the region's operators; by it they are found again after a restart.
        runner: what runs it in place of Spark.

    Raises:
        GraphError: for arguments that cannot be, at the user's line.
    """
    streams = dict(inputs) if isinstance(inputs, Mapping) else {"input": inputs}
    options = options or SparkOptions()
    first = _checked(streams, what, tables or {}, runner)
    name = name or first.graph.fresh_name("spark")
    if combine is None:
        return _region(streams, what, every, over, tables, schemas, options, checkpoint, name, runner, keep=keep)
    if isinstance(over, Mapping) or over == "new" or runner is not None:
        raise GraphError(f'{user_site()}: combine= is for over="all" or a number of epochs, and for Spark')
    period, calendar = _calendar(every, over, streams)
    part: Every = 1 if period is not None else every
    if isinstance(calendar.over, int):  # each run is over whole parts
        part = math.gcd(calendar.every, calendar.over)
    parts = _region(streams, what, part, "new", tables, schemas, options, checkpoint, f"{name}-parts")
    return _region({"input": parts}, combine, every, over, None, None, options, checkpoint, name, moves=over != "all")


def _region(
    inputs: Mapping[str, Columns | View],
    what: Callable[..., DataFrame] | str,
    every: Every,
    over: Over | Mapping[str, Over],
    tables: Mapping[str, Any] | None,
    schemas: Mapping[str, pa.Schema] | None,
    options: SparkOptions,
    checkpoint: Every,
    name: str,
    runner: Runner | None = None,
    moves: bool = False,
    keep: bool = False,
) -> Columns:
    """The operators of a region.

    `moves`: it has a run also if its input, a region, has had one that gave no rows.
    """
    streams, views, all_tables = take_apart(inputs, tables or {})
    first = next(iter(streams.values()))
    period, calendar = _calendar(every, over, inputs)
    paths, others = _tables(all_tables)
    steps = [*views, Viewed("", tuple((each, each) for each in inputs), what, tuple(tables or {}))]
    plain = runner is None and not moves and calendar.over == "new" and period is None and not options.remote
    declared = {}
    for each, schema in (schemas or {}).items():
        if each not in streams or not isinstance(schema, pa.Schema):
            raise GraphError(
                f"{user_site()}: schemas= takes a pyarrow.Schema for the name of an input, not {each!r}: {schema!r}"
            )
        declared[each] = write_schema(_carried(schema))
    ours = runner is None
    if runner is None:
        from libraries.spark.dataflow.runner import SparkRunner

        runner = SparkRunner(name, what, others, options, whole=lambda: step.whole())
    # Rows that later runs read, too, keep all columns: the query may be another one by then.
    reads = {}
    if ours and not options.remote:
        new = [each for each in streams if calendar.of(each).over == "new"]
        # The same in every process that builds the program: functions, which are not, take no stream of these.
        known = [each._replace(what="") if callable(each.what) else each for each in steps]
        reads = {each: Reads.of(name, each, known, options.config) for each in new if _all_sql(steps, each)}
    delivered = [
        deliver(
            stream, Consumer(name, each, runner.warm, reads=reads.get(each), empty=moves), f"{name}-spill-{each}", Spill
        )
        for each, stream in streams.items()
    ]
    spilled = delivered[0].concat(*delivered[1:])
    periodic = period is not None  # then it remembers a run that was left out
    graph = first.graph

    def gather() -> Gather:
        whole = step.whole()
        listed = whole.paths if step.fused_with() is None else {}  # files of tables are listed once for a run
        if whole is step:
            return Gather(name, calendar, streams, declared, listed)
        return Gather(name, calendar, whole.streams, {}, listed)

    gathered = spilled.unary(
        f"{name}-gather",
        gather,
        Exchange(key=lambda _: HOME),
        # While it merges, and while it lists files: its own, and of a step that is fused with it.
        holds=calendar.over != "new" or bool(paths) or _behind_a_region(graph, streams),
    ).policy(Lazy(every=checkpoint, log_outputs=True))
    handed = Deliveries(len(graph.nodes), 1)

    def compute() -> Compute | HandOn:
        consumer = step.fused_with()
        if consumer is not None:
            return HandOn(name, calendar, consumer)
        return Compute(name, calendar, runner, period, time.monotonic, step.reads, handed.consumers)

    computed = gathered.unary(name, compute, holds=True, stateful=periodic).policy(
        Lazy(every=checkpoint, log_outputs=True) if periodic else Batch(log_outputs=True)
    )
    step = Step(
        *(name, graph, graph.region, inputs, steps, all_tables, paths, others, list(streams), reads, calendar, options),
        *(plain, keep, len(graph.nodes), handed),
    )
    read = graph.add_node(
        "unary", graph.root, f"{name}-read", factory=RegionReading(lambda: Read(name), handed, step=step), holds=True
    )
    graph.add_edge(computed.outputs[0], Input(read.index, 0), Exchange(key=lambda share: share[0]))
    return Columns(graph, graph.root, (Output(read.index),))


def _behind_a_region(graph: Graph, streams: Mapping[str, Columns]) -> bool:
    outputs = (output for stream in streams.values() for output in stream.outputs)
    return any(isinstance(graph.nodes[output.node].factory, RegionReading) for output in outputs)


def _all_sql(steps: Sequence[Viewed], stream: str) -> bool:
    """True if all steps over this stream are SQL.

    Spark knows the columns that SQL reads.
    """
    return all(isinstance(each.what, str) for each in steps if stream in dict(each.inputs).values())


def _checked(
    inputs: Mapping[str, Columns | View], what: object, tables: Mapping[str, Any], runner: Runner | None
) -> Columns:
    site = user_site()
    streams, views, tables = take_apart(inputs, tables)
    if not streams:
        raise GraphError(f"{site}: a region on Spark needs at least one stream of columns")
    if views and runner is not None:
        raise GraphError(f"{site}: a view is for regions on Spark, not for runner=")
    first = next(iter(streams.values()))
    for name, stream in streams.items():
        if not isinstance(stream, Columns):
            kind = type(stream).__name__
            raise GraphError(
                f"{site}: input {name!r} of a region on Spark is {kind}, not Columns: use to_columns() first"
            )
        stream._check_read("a region on Spark")
        if stream.graph is not first.graph:
            raise GraphError(
                f"{site}: the inputs of a region on Spark are of two dataflows; build both in one Dataflow"
            )
        if stream.scope.depth != 1:
            raise GraphError(
                f"{site}: a region on Spark takes whole epochs, but {name!r} is in {stream.scope}: leave() first"
            )
    for name in (*inputs, *(inner for each in views for inner, _ in each.inputs), *tables):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise GraphError(f"{site}: {name!r} cannot be the name of a table in SQL: use letters, digits and _")
    if twice := {*streams, *(name for each in views for name, _ in each.inputs), *inputs} & tables.keys():
        raise GraphError(f"{site}: {min(twice)!r} is the name of an input and of a table; rename one of them")
    if not callable(what) and not (isinstance(what, str) and what.strip()):
        raise GraphError(f"{site}: a region on Spark takes a function or SQL text, not {what!r}")
    return first


def _calendar(
    every: Every, over: Over | Mapping[str, Over], inputs: Mapping[str, Columns | View]
) -> tuple[float | None, Calendar]:
    """Period of a region in seconds, or None, and the calendar of its runs."""
    if not isinstance(over, Mapping):
        return _calendar_of(every, over, f"over={over!r}")
    if unknown := [name for name in over if name not in inputs]:
        raise GraphError(
            f"{user_site()}: over= names {unknown[0]!r}, which is no input of the region: it has {', '.join(map(repr, inputs))}"
        )
    overs: dict[str, Over] = {}
    period, calendar = None, Calendar()
    for name, stream in inputs.items():
        each = over.get(name, "new")
        period, calendar = _calendar_of(every, each, f"over={{{name!r}: {each!r}}}")
        overs |= dict.fromkeys(take_apart({name: stream}, {}).streams, calendar.over)
    return period, Calendar.of_inputs(calendar.every, overs)


def _calendar_of(every: Every, over: Over, named: str) -> tuple[float | None, Calendar]:
    site = user_site()
    if over not in ("new", "all") and (not isinstance(over, int) or isinstance(over, bool) or over < 1):
        raise GraphError(f'{site}: {named}: must be "new", "all", or a number of epochs from 1 up')
    if every == "end":
        if isinstance(over, int):
            raise GraphError(f'{site}: every="end" is one run over everything: leave {named} away')
        return None, Calendar(INF, "all")
    chosen = interval(every)
    if chosen.seconds is not None:
        if over == "new":
            raise GraphError(
                f'{site}: every={every!r} is a period; say over="all", or over how many epochs a run goes, for each input'
            )
        return chosen.seconds, Calendar(1, over)
    assert chosen.epochs is not None
    if isinstance(over, int) and over < chosen.epochs:
        raise GraphError(f"{site}: {named} leaves out epochs between two runs, which are {chosen.epochs} epochs apart")
    return None, Calendar(chosen.epochs, over)


def _carried(schema: pa.Schema) -> pa.Schema:
    try:
        return carried_schema(schema)
    except SparkError as error:
        raise GraphError(f"{user_site()}: {error}") from error


def _tables(tables: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Tables split into paths and others; the latter in serializable form."""
    paths = {name: os.fspath(what) for name, what in tables.items() if isinstance(what, str | os.PathLike)}
    for name, path in paths.items():
        try:
            local_path(path)
        except SparkError as error:
            raise GraphError(f"{user_site()}: table {name!r}: {error}") from error
    return paths, {name: _table(name, what) for name, what in tables.items() if name not in paths}


def _table(name: str, what: Any) -> Any:
    if callable(what) and not hasattr(what, "to_arrow"):
        return what
    if isinstance(what, pa.Table):
        return what
    for method in ("toArrow", "to_arrow"):  # of Spark, of Polars
        if hasattr(what, method):
            table = getattr(what, method)()
            return table.cast(_carried(table.schema))
    if type(what).__module__.startswith("pandas"):
        return pa.Table.from_pandas(what, preserve_index=False)
    raise GraphError(
        f"{user_site()}: the table {name!r} is {type(what).__name__}; give a path of Parquet files, a function from a "
        "SparkSession to a DataFrame, or a table of Polars, pandas, Arrow or Spark"
    )
