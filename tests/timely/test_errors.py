"""Failures are told once, clearly: which operator, which line of the user, what to do; and nothing is half-written."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from libraries.columns import agg
from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import Csv, FileSink, Parquet
from runtime.run import run
from runtime.session.cluster import Cluster
from timely.data.batch import Batch
from timely.data.routing import shard_of, stable_hash, worker_of_shard
from timely.errors import CodecError, FalkirkError, OperatorError, SinkError, SourceError
from timely.io import Iterable, Memory
from timely.io.interface import Chunk, End, Position, Wait
from timely.operators.base import Context, Operator
from timely.operators.channels import Exchange
from timely.time import Time

HERE = Path(__file__).name
ROWS: Any = [{"k": n % 3, "v": n} for n in range(12)]


def run_to_the_end(flow: Dataflow, workers: int) -> None:
    cluster = Cluster(flow, workers, None)
    try:
        cluster.run()
    finally:
        for session in cluster.sessions:
            session.abort()


def failure(build: Callable[[Stream], Any], records: Any, workers: int = 1) -> FalkirkError:
    """The error of a job that reads `records` and does what `build` says."""
    flow = Dataflow("failing")
    build(flow.source("records", Iterable(records, batch=4)))
    with pytest.raises(FalkirkError) as caught:
        run_to_the_end(flow, workers)
    return caught.value


def line_of(function: Any) -> int:
    return inspect.getsourcelines(function)[1]


def bad_map(s: Stream) -> Any:
    return s.map(lambda x: 10 // (x - 7), name="divide").capture()


def bad_filter(s: Stream) -> Any:
    return s.map(abs).filter(lambda x: x.missing, name="divide").capture()


def bad_flat_map(s: Stream) -> Any:
    return s.flat_map(lambda x: x, name="divide").capture()


def bad_batches(s: Stream) -> Any:
    return s.map_batches(lambda batch: batch[99], name="divide").capture()


def bad_result(s: Stream) -> Any:
    return s.map_batches(lambda batch: "text", name="divide").capture()


def bad_key(s: Stream) -> Any:
    return s.key_by(lambda x: x["no"], name="divide").count().capture()


def bad_reduce(s: Stream) -> Any:
    return s.key_by(lambda x: 0).reduce(lambda a, b: a / 0, name="divide").capture()


def bad_fold(s: Stream) -> Any:
    return s.key_by(lambda x: 0).fold(0, lambda a, b: a / 0, name="divide").capture()


def bad_pairs(s: Stream) -> Any:
    return s.keyed().join(s.keyed(), name="divide").capture()


def bad_branch(s: Stream) -> Any:
    return s.branch(lambda x: x.missing, name="divide")[0].capture()


def bad_exchange(s: Stream) -> Any:
    return s.exchange(lambda x: x.missing, name="divide").capture()


BAD = [
    *(bad_map, bad_filter, bad_flat_map, bad_batches, bad_result, bad_key),
    *(bad_reduce, bad_fold, bad_pairs, bad_branch, bad_exchange),
]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("build", BAD, ids=lambda build: build.__name__)
def test_a_function_that_raises_is_blamed_by_name_and_line(build: Callable[[Stream], Any], workers: int) -> None:
    error = failure(build, range(20), workers)
    assert isinstance(error, OperatorError)
    assert "'divide'" in str(error)
    assert f"{HERE}:{line_of(build) + 1}" in str(error)
    assert re.search(r"\w+Error: ", str(error))


def test_the_very_record_is_shown() -> None:
    error = failure(bad_map, range(20))
    assert "ZeroDivisionError" in str(error)
    assert "at time (0,)" in str(error)
    assert "the record: 7" in str(error)


def test_long_records_are_cut() -> None:
    assert len(str(failure(lambda s: s.map(lambda x: x.no), ["x" * 10_000]))) < 1000


def test_the_users_own_error_is_the_cause() -> None:
    assert isinstance(failure(bad_map, range(20)).__cause__, ZeroDivisionError)


COLUMNS: list[tuple[str, Callable[[Stream], Any]]] = [
    ("nope", lambda s: s.to_columns().filter(pl.col("nope") > 1, name="here")),
    ("nope", lambda s: s.to_columns().select("nope", name="here")),
    ("nope", lambda s: s.to_columns().with_columns(pl.col("nope"), name="here")),
    ("nope", lambda s: s.to_columns().exchange("nope", name="here")),
    ("nope", lambda s: s.to_columns().group_by("nope").agg(n=agg.count(), name="here")),
    ("nope", lambda s: s.to_columns().group_by("k").agg(n=agg.sum("nope"), name="here")),
    ("nope", lambda s: s.to_columns().key_by("nope", name="here")),
    ("nope", lambda s: s.to_columns().join(s.to_columns(), on="nope", name="here")),
    ("nope", lambda s: s.to_columns().branch(pl.col("nope"), name="here")[0]),
    ("key_by", lambda s: s.to_columns().map_batches(lambda f: f).key_by("k").map_batches(
        lambda b: pl.DataFrame({"x": [1]})).count(name="here")),
]  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("words", "build"), COLUMNS)
def test_an_unknown_column_is_named_with_its_operator(words: str, build: Callable[[Stream], Any], workers: int) -> None:
    text = str(failure(lambda s: build(s).capture(), ROWS, workers))
    assert words in text
    assert f"{HERE}:" in text
    assert "'here'" in text or "'ones" in text


class Opaque:
    """Nothing that the codec carries."""


class Silent(Operator):
    """Takes everything and says nothing."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        return


@pytest.mark.parametrize("workers", [1, 2])
def test_a_value_that_cannot_travel_is_an_error_with_any_number_of_workers(workers: int) -> None:
    def text(build: Callable[[Stream], Any]) -> str:
        error = failure(lambda s: build(s).capture(), range(20), workers)
        assert isinstance(error, CodecError)
        return str(error)

    for build in (
        lambda s: s.map(lambda x: (x, Opaque())).exchange(lambda r: r[0], name="far"),
        lambda s: s.map(lambda x: Opaque()).broadcast(name="far"),
        lambda s: s.map(lambda x: (x, Opaque())).keyed().fold(0, lambda a, v: a, name="far"),
        lambda s: s.map(lambda x: (x, [Opaque()])).keyed().join(s.map(lambda x: (x, x)).keyed(), name="far"),
        lambda s: s.map(lambda x: (x, x)).keyed().join(s.map(lambda x: (x, [Opaque()])).keyed(), name="far"),
        lambda s: s.map(lambda x: (x, {Opaque()})).unary("far", Silent, Exchange()),
        lambda s: s.map(lambda x: (Opaque(), 1)).keyed().count(name="far"),
    ):
        message = text(build)
        assert "the exchange in front of" in message
        assert "'far'" in message
        assert "Opaque" in message
        assert f"{HERE}:" in message


def test_what_never_travels_may_be_anything() -> None:
    flow = Dataflow()
    seen = flow.source("in", Iterable(range(3))).map(lambda x: Opaque()).filter(lambda x: True).capture()
    assert [type(x) for _, batch in run(flow).captured(seen) for x in batch] == [Opaque] * 3


class TestCustomOperators:
    """Factories and operators that users write themselves."""

    def test_a_factory_that_raises_or_makes_something_else(self) -> None:
        for factory in (lambda: 1 // 0, lambda: 3):
            error = failure(lambda s, f=factory: s.unary("mine", f), [1])  # type: ignore[misc]
            assert f"the factory of unary 'mine' ({HERE}" in re.sub(r"\(/.*/", "(", str(error))

    def test_an_operator_that_forgot_on_batch(self) -> None:
        assert "'mine'" in str(failure(lambda s: s.unary("mine", Operator), [1]))

    def test_a_notification_that_raises(self) -> None:
        class Late(Operator):
            def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
                ctx.notify_at()

            def on_notify(self, ctx: Context, time: Time) -> None:
                raise ValueError("too late")

        text = str(failure(lambda s: s.unary("late", Late), [1]))
        assert f"unary 'late' ({__file__}" in text
        assert "at time (0,): ValueError: too late" in text

    def test_an_output_port_that_is_not_there(self) -> None:
        class Astray(Operator):
            def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
                ctx.send(batch, 4)

        assert "'astray'" in str(failure(lambda s: s.unary("astray", Astray), [1]))


class Broken:
    """A source or a sink that fails where it is told."""

    name = "part"

    def __init__(self, where: str, error: Exception) -> None:
        self.where = where
        self.error = error
        self.done: list[str] = []

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what == self.where:
            raise self.error

    def partitions(self, worker: int, workers: int) -> Sequence[Broken]:
        self._do("partitions")
        return [self] if worker == 0 else []

    def read(self) -> Chunk | Wait | End:
        self._do("read")
        return End()

    def seek(self, position: Position) -> None: ...

    def ack(self, position: Position) -> None: ...

    def open(self, worker: int, workers: int) -> Broken:
        self._do("open")
        return self

    def write(self, epoch: int, batch: Batch) -> None:
        self._do("write")

    def commit(self, epoch: int) -> None:
        self._do("commit")

    def abort(self) -> None:
        self._do("abort")

    def close(self) -> None:
        self._do("close")


@pytest.mark.parametrize("error", [ValueError("bad"), OSError("bad"), SourceError("bad")])
@pytest.mark.parametrize("where", ["partitions", "read"])
def test_a_source_that_fails_is_named(where: str, error: Exception) -> None:
    flow = Dataflow()
    flow.source("mine", Broken(where, error)).capture()
    with pytest.raises(SourceError, match=rf"source 'mine' \(.*{HERE}:\d+\): .*bad"):
        run(flow)


@pytest.mark.parametrize("error", [ValueError("bad"), OSError("bad"), SinkError("bad")])
@pytest.mark.parametrize("where", ["open", "write", "commit", "close"])
def test_a_sink_that_fails_is_named_and_the_others_are_aborted(where: str, error: Exception) -> None:
    sink, other = Broken(where, error), Broken("", error)
    flow = Dataflow()
    stream = flow.source("in", Iterable([1]))
    stream.to(other)
    stream.to(sink, name="mine")
    with pytest.raises(SinkError, match=rf"sink 'mine' \(.*{HERE}:\d+\): .*bad"):
        run(flow)
    assert "abort" in other.done


def test_an_error_while_aborting_does_not_hide_the_first() -> None:
    sink = Broken("abort", ValueError("second"))
    source = Broken("close", ValueError("third"))
    flow = Dataflow()
    flow.source("in", Iterable([1])).map(lambda x: x.first).to(sink)
    flow.source("other", source).capture()
    with pytest.raises(OperatorError, match="no attribute 'first'"):
        run(flow)
    assert "abort" in sink.done
    assert "close" in source.done


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failure_leaves_whole_epochs_and_no_partial_file(tmp_path: Path, workers: int) -> None:
    flow = Dataflow()
    numbers = flow.source("in", Iterable(range(100), epoch_every=10, batch=5))
    numbers.map(lambda x: x + 0 // (57 - x)).exchange(lambda x: x).to(FileSink(tmp_path / "out"))
    with pytest.raises(OperatorError, match="ZeroDivisionError"):
        run_to_the_end(flow, workers)
    files = sorted(path for path in (tmp_path / "out").rglob("*") if path.name != ".falkirk-job")
    assert [path for path in files if "tmp" in path.name or path.name.startswith(".")] == []
    assert files
    for path in files:
        epoch, worker = map(int, re.findall(r"\d+", path.stem))
        records = range(10 * epoch, 10 * epoch + 10)
        mine = [x for x in records if worker_of_shard(shard_of(stable_hash(x)), workers) == worker]
        assert epoch < 5
        assert sorted(json.loads(path.read_text().replace("\n", ",").join("[]").replace(",]", "]"))) == mine


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    for source in (Csv(str(tmp_path / "no.csv")), Parquet(str(tmp_path / "no.parquet"))):
        flow = Dataflow()
        sink = Memory()
        flow.columns("orders", source).to(sink)
        with pytest.raises(SourceError, match=rf"source 'orders' \(.*{HERE}:\d+\).*no\.(csv|parquet)"):
            run(flow)
        assert sink.epochs == []


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.parquet"
    pl.DataFrame({"x": range(10_000)}).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-100])
    flow = Dataflow()
    flow.columns("orders", Parquet(str(path))).capture()
    with pytest.raises(SourceError, match=r"source 'orders'.*cut\.parquet"):
        run(flow)


def test_of_what_an_error_says_no_more_is_shown_than_can_be_read() -> None:
    def work(n: int) -> int:
        raise ValueError("much " * 2_000_000)

    error = str(failure(lambda s: s.map(work, name="work").capture(), range(3)))
    assert "map 'work'" in error
    assert "(10,000,000 characters in all)" in error
    assert len(error) < 5000


def test_a_source_that_calls_sys_exit_does_not_pass_for_one_that_has_ended() -> None:
    def numbers() -> Any:
        yield from range(30)
        raise SystemExit(0)

    flow = Dataflow("leaves")
    flow.source("in", Iterable(numbers, batch=4)).map(abs).capture("out")
    with pytest.raises(OperatorError, match=r"source 'in' .*sys\.exit\(0\)"):
        run(flow)
