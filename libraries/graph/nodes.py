"""Nodes of a graph: any hashable values; pairs go as keys (`Collection.as_keys`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import numpy as np

from libraries.columns.verbs.columns import Columns
from libraries.differential import Collection
from libraries.differential.rows import as_key
from timely.dataflow.wire import Wire
from timely.errors import GraphError, user_site

P = ParamSpec("P")


def of_edges(function: Callable[P, Collection]) -> Callable[P, Collection]:
    """Decorator of graph algorithms: rejects arguments other than collections.

    Raises:
        GraphError: with the user's line.
    """

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> Collection:
        edges: Any = args[0] if args else kwargs.get("edges")
        for each in (edges, *args, *kwargs.values()):
            if (each is edges and not isinstance(each, Collection)) or isinstance(each, Wire):
                how = "from_columns(stream, 'from', 'to')" if isinstance(each, Columns) else "from_records(stream)"
                raise GraphError(
                    f"{user_site()}: {function.__name__} takes collections, not {type(each).__name__}: "
                    f"differential.{how} makes one of a stream"
                )
        return function(*args, **kwargs)

    return checked


def nodes_of(edges: Collection) -> Collection:
    """Distinct nodes with an edge, as keys."""
    return edges.map_pairs(lambda a, b: as_key(a)).concat(edges.map_pairs(lambda a, b: as_key(b))).distinct()


def bare(nodes: Collection) -> Collection:
    """Nodes as records, from nodes as keys."""
    return nodes.map_pairs(lambda node, _: node)


def each(node: Any, number: int) -> Any:
    """`number`, repeated for an array of nodes."""
    return np.full(len(node), number) if isinstance(node, np.ndarray) else number
