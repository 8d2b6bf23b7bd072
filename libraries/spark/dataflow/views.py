"""`view`: a step within the query of a region on Spark, without runs or files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from libraries.columns.verbs.columns import Columns
from timely.errors import GraphError, user_site

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Function or SQL over streams, an input of `batch`; made by `view`."""

    inputs: Mapping[str, Columns | View]
    what: Callable[..., DataFrame] | str
    tables: Mapping[str, Any]


def view(
    inputs: Columns | View | Mapping[str, Columns | View],
    what: Callable[..., DataFrame] | str,
    *,
    tables: Mapping[str, Any] | None = None,
) -> View:
    """Step within regions' queries, an input of `batch` in the place of a stream.

    A region's rows are kept in files, so that they are never made again, and so that several may take them. A view's are not:
    Spark plans it with each region that takes it, as part of one query, and does it again when the region's run fails. The
    region has a run where the streams that the view is over have rows, even if none come out of the view.

    Args:
        inputs: a stream of columns, or a view, called "input"; or several by name.
        what: a function of Spark DataFrames, or SQL, as of `batch`.
        tables: DataFrames that are there already, by name, as of `batch`.

    Raises:
        GraphError: for arguments that cannot be, at the user's line.

    >>> from libraries import spark
    >>> from libraries.columns.verbs.dataflow import Dataflow
    >>> from libraries.connect import Parquet
    >>> orders = Dataflow("orders").columns("orders", Parquet("orders/*.parquet"))
    >>> paid = spark.view(orders, "select shop, price from input where price > 0")
    >>> sums = spark.batch({"paid": paid}, "select shop, sum(price) as sum from paid group by shop")
    """
    named = dict(inputs) if isinstance(inputs, Mapping) else {"input": inputs}
    if not named:
        raise GraphError(f"{user_site()}: a view needs at least one stream of columns")
    if not callable(what) and not (isinstance(what, str) and what.strip()):
        raise GraphError(f"{user_site()}: a view is a function or SQL text, not {what!r}")
    return View(named, what, dict(tables or {}))


class Viewed(NamedTuple):
    """View as part of a region: its name, and its inputs as (inner, outer) names."""

    name: str
    inputs: tuple[tuple[str, str], ...]
    what: Callable[..., DataFrame] | str
    tables: tuple[str, ...]
    region: str = ""
    """Region of origin, its session included; by default the region with the run."""
    kept: bool = False
    """True if its results are kept in files, like results of its region's own run.

    That is done if it matters.
    """


class Taken(NamedTuple):
    """Inputs of a region by kind: streams, views from first to last, tables."""

    streams: dict[str, Columns]
    views: list[Viewed]
    tables: dict[str, Any]


def take_apart(inputs: Mapping[str, Columns | View], tables: Mapping[str, Any]) -> Taken:
    """Take a region's inputs apart into streams, views and tables.

    The stream `input` of a view that the region knows as `orders` is called `orders_input`.

    Raises:
        GraphError: for a name that two of them have, at the user's line.
    """
    taken = Taken({}, [], dict(tables))
    _take(taken, inputs, "")
    return taken


def _take(taken: Taken, inputs: Mapping[str, Columns | View], before: str) -> None:
    for name, what in inputs.items():
        known = f"{before}{name}"
        if isinstance(what, View):
            _take(taken, what.inputs, f"{known}_")
        if known in taken.streams or any(known == each.name for each in taken.views):
            raise GraphError(f"{user_site()}: {known!r} is the name of two inputs; rename one of them")
        if not isinstance(what, View):
            taken.streams[known] = what
            continue
        for table, content in what.tables.items():
            if taken.tables.setdefault(table, content) is not content:
                raise GraphError(f"{user_site()}: {table!r} is the name of two tables; rename one of them")
        pairs = tuple((inner, f"{known}_{inner}") for inner in what.inputs)
        taken.views.append(Viewed(known, pairs, what.what, tuple(what.tables)))
