"""Conditions and columns go below joins where the answer stays the same: drawn queries against SQLite, and what joins get."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.dataflow import Dataflow
from libraries.sql import tables
from libraries.sql.query import sql
from libraries.sql.relations import Relation
from runtime.session.cluster import Cluster
from tests.libraries.sql.test_sql_as_changes import SCHEMAS, answer, check, epochs, plain
from timely.data.batch import as_polars
from timely.errors import GraphError
from timely.io import Batches

pytestmark = pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 39), reason="SQLite lacks right and full joins")

some = settings(max_examples=settings.default.max_examples)

CONDITIONS = [
    *("a.n > 0", "x > 0", "b.n > 0", "t = 'u'", "b.n is null", "id is null", "m > 0", "c.k is null", "a.n is not null"),
    *("coalesce(b.n, 1) > 0", "not (t = 'u')", "(a.n > 0 or x > 0)", "(a.n > 0 or b.n > 0)", "a.n = b.n", "m is null"),
    *("(a.n > 0 and x > 0 or a.n > 0 and t = 'u')", "a.k in ('p', 'q')", "c.k <> 'p'"),
]
JOINS = st.sampled_from(["join", "left join", "right join", "full join"])


@st.composite
def queries(draw: st.DrawFn) -> str:
    """Three tables, joined in all ways, with conditions on one of them or several."""
    where = " and ".join(draw(st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=3)))
    source = f"a {draw(JOINS)} b on a.k = b.id {draw(JOINS)} c on c.k = b.id"
    if draw(st.booleans()):
        where, source = f"a.k = b.id and c.k = b.id and {where}", "a, b, c"
    return f"select a.k, x, t, m from {source} where {where}"


@some
@given(queries(), epochs, st.integers(1, 2), st.integers(0, 99))
def test_running_rows_are_those_of_sqlite(query: str, given: Any, workers: int, seed: int) -> None:
    check(query, query, given, workers, seed)


@some
@given(queries(), epochs)
def test_rows_of_an_epoch_are_those_of_sqlite(query: str, given: Any) -> None:
    cluster, out = built(query, given[:1], over="time")
    cluster.run()
    rows = Counter(plain(row) for _, batch in cluster.captured(out) for row in as_polars(batch).rows())
    assert rows == answer(query, given[0])


def built(query: str, given: list[dict[str, list[Any]]], **said: Any) -> tuple[Cluster, Any]:
    flow = Dataflow()
    streams = {
        name: flow.columns(name, Batches([pl.DataFrame(epoch[name], schema, orient="row") for epoch in given]))
        for name, schema in SCHEMAS.items()
    }
    out = sql(query, **streams, **said).capture()
    return Cluster(flow, 1, 0), out


@pytest.mark.parametrize(
    ("query", "columns", "filtered"),
    [
        ("select a.k, t from a join b on k = id where x > 0", ["kx", "kt"], [True, False]),
        ("select a.k, t from a, b where k = id and x > 0 and b.n > 0", ["kx", "knt"], [True, True]),
        ("select a.k, t from a left join b on a.n = b.n where x > 0 and t = 'u'", ["knx", "nt"], [True, False]),
        ("select a.k, t from a right join b on a.n = b.n where x > 0 and t = 'u'", ["knx", "nt"], [False, True]),
        ("select a.k, t from a full join b on a.n = b.n where x > 0 and t = 'u'", ["knx", "nt"], [False, False]),
        ("select count(*) as c from a join b on k = id where b.n > 0", ["k", "kn"], [False, True]),
        ("select count(*) as c from a join b using (n) where n > 0 and x > 0", ["nx", "n"], [True, False]),
        ("select * from a join b on k = id where x > 0", ["knx", "knt"], [True, False]),
        ("select b.*, x from a join b on k = id where t = 'u'", ["knx", "knt"], [False, True]),
    ],
)
def test_a_join_gets_what_is_asked_for_and_no_more(
    query: str, columns: list[str], filtered: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[tuple[str, bool]] = []
    before = tables.joined

    def joined(left: Relation, right: Relation, *more: Any) -> Any:
        for side in (left, right):
            graph, (output,) = side.stream.graph, side.stream.outputs
            kinds, node = set[str](), output.node
            while graph.incoming()[node]:
                kinds.add(graph.nodes[node].kind)
                node = graph.incoming()[node][0].source.node
            names = sorted(each for each in side.schema or () if len(each) == 1)  # copies of keys are called otherwise
            got.append(("".join(names), "filter" in kinds))
        return before(left, right, *more)

    monkeypatch.setattr(tables, "joined", joined)
    built(query, [{name: [] for name in SCHEMAS}], over="time")
    assert got == list(zip(columns, filtered, strict=True))


def test_an_error_in_a_condition_that_goes_below_a_join_says_it_as_the_user_did() -> None:
    given = [{name: list[Any]() for name in SCHEMAS}]
    with pytest.raises(GraphError, match=r"test_sql_of_pushdown.py:\d+: .*no column 'y'; there are 'k', 'n', 'x'"):
        built("select a.k from a join b on k = id where a.y > 0", given)
    with pytest.raises(GraphError, match="column 'n' is in several tables"):
        built("select a.k from a join b on k = id where n > 0", given)
