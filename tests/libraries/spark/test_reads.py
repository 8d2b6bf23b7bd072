"""Columns that no query reads are not written, once Spark has said which are read; and a query that has changed is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.files import deliveries
from libraries.spark.files import parquet as files
from libraries.spark.files.deliveries import Consumer
from libraries.spark.files.reads import Reads
from libraries.spark.host.host import host_of
from runtime.session.session import Session
from tests.libraries.spark.test_deliveries import Context
from timely.errors import FalkirkError
from timely.io.memory import rows_of

OPTIONS = spark.SparkOptions(memory="700m", nice=0, config=(("spark.sql.shuffle.partitions", "2"),))
TABLE = pa.table({"k": [1, 2], "v": [3, 4], "wide": ["x", "y"]})


def columns_of(path: str) -> list[str]:
    names: list[str] = pq.read_schema(path).names
    return names


def test_file_has_the_same_name_whatever_was_known_when_it_was_written(tmp_path: Path) -> None:
    found = []
    first = Reads.of("one", "in", "select k from in")
    for folder, reads in (("before", []), ("after", [("k",)]), ("other query", [("k",)]), ("other columns", [("k",)])):
        (tmp_path / folder).mkdir()
        context: Any = Context(tmp_path / folder, durable=False)
        mine = Reads.of("one", "in", "select v from in") if folder == "other query" else first
        for read in reads:
            first.note(context, ["k"] if folder == "other columns" else TABLE.column_names, read)
        consumers = [Consumer("one", "in", reads=mine)]
        (((entry,)),) = deliveries.write_for(context, consumers, 3, 0, 0, [TABLE])
        found.append((Path(entry.path).name, entry.digest, entry.rows, columns_of(entry.path)))
    everything = TABLE.column_names
    assert [columns for *_, columns in found] == [everything, ["k"], everything, everything]
    assert len({name for name, *_ in found}) == len({digest for _, digest, *_ in found}) == 1


def test_column_is_written_where_one_of_several_reads_it(tmp_path: Path) -> None:
    context: Any = Context(tmp_path, durable=False)
    one, two = (Reads.of(name, "in", name) for name in ("one", "two"))
    one.note(context, TABLE.column_names, ["k"])
    two.note(context, TABLE.column_names, ["v"])
    consumers = [Consumer("one", "in", reads=one), Consumer("two", "in", reads=two)]
    written = [deliveries.write_for(context, each, 0, 0, 0, [TABLE]) for each in (consumers, consumers[::-1])]
    assert all(columns_of(entry.path) == ["k", "v"] for told in written for (entry,) in told)
    ((entry,), _) = deliveries.write_for(context, [consumers[0], Consumer("three", "in")], 1, 0, 0, [TABLE])
    assert columns_of(entry.path) == TABLE.column_names


QUERIES = {
    "sums": "select k, sum(v) as v from input group by k",
    "places": "select a as k, b as v from (input) as t(a, b, c)",
    "view": "select k from input",
}


@pytest.mark.check
@pytest.mark.spark
def test_later_files_have_what_is_read_and_rows_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[list[str]] = []
    write = files.write_input

    def noting(folder: Path, stem: str, tables: Any, durable: bool = True) -> str:
        written.append(tables[0].column_names)
        return write(folder, stem, tables, durable)

    monkeypatch.setattr(files, "write_input", noting)
    flow = Dataflow("reads")
    probes = []
    for name, sql in QUERIES.items():
        rows = flow.input(f"in-{name}").to_columns()
        over = spark.view(rows, "select k, wide from input") if name == "view" else rows
        result = spark.batch({"input": over}, sql, options=OPTIONS, name=name)
        result.capture(f"out {name}")
        probes.append(result.probe(f"done {name}"))
    try:
        with Session(flow) as session:
            for epoch in range(3):
                for name in QUERIES:
                    session.input(f"in-{name}").send([{"k": epoch, "v": each, "wide": "x"} for each in range(2)])
                    session.input(f"in-{name}").advance_to(epoch + 1)
                session.step_until(lambda at=epoch: all(session.probe(each).done(at) for each in probes))  # type: ignore[misc]
            for name in QUERIES:
                session.input(f"in-{name}").close()
            session.run()
            found = {
                name: [row for _, batch in session.captured(f"out {name}") for row in rows_of(batch)]
                for name in QUERIES
            }
    finally:
        host_of(OPTIONS).stop()
    everything = ["k", "v", "wide"]
    assert written.count(everything) == 3 + 1 + 1
    assert sorted(columns for columns in written if columns != everything) == [["k", "v"]] * 2 + [["k", "wide"]] * 2
    assert found["sums"] == [{"k": epoch, "v": 1} for epoch in range(3)]
    assert found["places"] == [{"k": epoch, "v": each} for epoch in range(3) for each in range(2)]
    assert found["view"] == [{"k": epoch} for epoch in range(3) for _ in range(2)]


@pytest.mark.check
@pytest.mark.spark
def test_query_that_reads_more_than_what_was_written_for_the_one_before_is_told() -> None:
    host = host_of(OPTIONS)
    try:
        for sql, missing in (("select * from input", "v"), ("select k, wide from input", "wide")):
            flow = Dataflow("changed")
            rows = flow.input("in").to_columns()
            spark.batch(rows, sql, options=OPTIONS, name="r").capture("out")
            with pytest.MonkeyPatch.context() as patch, Session(flow) as session:
                patch.setattr(deliveries, "_left_out", lambda *_: ("v", "wide"))  # as for a query that read k
                session.input("in").send([{"k": 1, "v": 2, "wide": "x"}])
                session.input("in").close()
                with pytest.raises(
                    FalkirkError, match=rf"'r' .*test_reads.py.*column '{missing}' of 'input'.*as it was"
                ):
                    session.run()
    finally:
        host.stop()
