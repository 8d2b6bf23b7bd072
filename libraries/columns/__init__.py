"""Streams of columns: verbs, operators, state and kernels.

- `kernels`: vectorised work on arrays.
- `agg`: aggregates.
- `state`: what operators keep.
- `operators`: running, windowed and expiring ones.
- `schemas`: columns that a verb gives, and arguments that name columns.
- `verbs`: `Columns`, `Changes`, `GroupBy`, `WindowedColumns`, and `Stream` and `Dataflow` with the way there.

Enters: streams of records, sources of columns. Leaves: nodes of the graph. Pure.
"""
