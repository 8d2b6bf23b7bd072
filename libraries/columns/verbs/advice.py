"""Advice for Polars frame verbs missing on streams of columns."""

from __future__ import annotations

_ADVICE = {
    "head tail limit first last slice reverse gather_every with_row_index shift merge_sorted": (
        "rows of a stream have no order of their own: top_k(k, by=...) gives the first few, sort(..., over='time') an order"
    ),
    "sum mean min max count median std var quantile n_unique null_count len height describe is_empty approx_n_unique": (
        "totals are those of agg: agg(n=agg.count(), total=agg.sum(column)), after group_by(...) for each key"
    ),
    "collect rows iter_rows to_dicts to_arrow to_pandas item show sink_parquet sink_csv sink_ipc write_csv write_parquet": (
        "capture(name) gives batches to whoever runs the dataflow, falkirk.run(flow).captured(name), and to(sink) writes them"
    ),
    "columns dtypes width collect_schema": "schema says which columns there are, and their types, where that is known",
    "pivot unpivot melt transpose sample map_rows apply hstack interpolate": (
        "of each batch by itself it is map_batches(lambda frame: ...)"
    ),
    "unique": "distinct(*columns) gives each combination of values once, group_by(...).top_k(1, by=...) one row of each",
    "bottom_k": "top_k(k, by=..., reverse=True) gives the least rows",
    "remove": "filter(~(...)) leaves out the rows for which it is true",
    "partition_by": "group_by(...).agg(...) has totals of each key, branch(predicate) parts a stream in two",
    "group_by_dynamic": "window(falkirk.Tumbling(length), time=column).group_by(...).agg(...) has totals of windows",
    "rolling": "window(falkirk.Sliding(length, every), time=column).group_by(...).agg(...) has totals of windows",
    "join_where": "join is on equal columns, with a filter behind it; join_interval on event times that are near each other",
    "lazy": "a stream is lazy: verbs side by side are one plan of Polars for each batch",
    "sql": "say falkirk.sql(query, name=stream)",
    "vstack extend union": "concat(other) has the rows of both",
    "clone clear": "a stream may be used as often as it is wanted",
}

OF_FRAMES = {verb: advice for verbs, advice in _ADVICE.items() for verb in verbs.split()}
"""Advice by name of the missing verb."""

OF_GROUPS = "groups have no rows of their own: agg(n=agg.count(), total=agg.sum(column)) gives a row for each"
"""Advice for verbs missing on groups and windows."""
