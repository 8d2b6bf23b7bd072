"""Differential dataflow: collections maintained incrementally, also through loops.

>>> import falkirk
>>> from falkirk import differential
>>> flow = falkirk.Dataflow("reachable")
>>> edges, roots = differential.input_of(flow, "edges"), differential.input_of(flow, "roots")
>>> def step(reached):
...     return edges.join(reached, lambda a, b, _: b).concat(roots).distinct()
>>> reached = roots.iterate(step).capture("reached")
>>> with falkirk.Session(flow) as session:
...     edge, root = differential.Input(session, "edges"), differential.Input(session, "roots")
...     root.insert("a")
...     edge.insert_all([("a", "b"), ("b", "c")])
...     for each in (edge, root):
...         each.advance_to(1)
...     edge.remove(("b", "c"))
...     for each in (edge, root):
...         each.close()
...     session.run()
...     found = session.captured(reached)
>>> sorted(differential.snapshot(found, epoch=0)), sorted(differential.snapshot(found))
(['a', 'b', 'c'], ['a', 'b'])
"""

from __future__ import annotations

from libraries.differential.collection import (
    LIMIT,
    Collection,
    from_changes,
    from_columns,
    from_records,
    grow,
    iterate,
)
from libraries.differential.delta_joins import delta_join
from libraries.differential.explain import explain
from libraries.differential.inputs import Input, input_of, snapshot
from libraries.differential.rows import Rows, rows_of

__all__ = [
    "LIMIT",
    "Collection",
    "Input",
    "Rows",
    "delta_join",
    "explain",
    "from_changes",
    "from_columns",
    "from_records",
    "grow",
    "input_of",
    "iterate",
    "rows_of",
    "snapshot",
]
