"""The benchmarks: that they measure what they say, and report it in the promised form."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from io import StringIO
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from falkirk.bench import BENCHES, bench_command, data, harness, main
from falkirk.bench.command import show
from falkirk.bench.registry import Bench, Variant
from timely.errors import FalkirkError

SIZE = 2_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench-data")


def rows_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.check
@pytest.mark.parametrize(
    ("name", "workers"),
    [
        pytest.param("wordcount", 1, marks=pytest.mark.soak),
        pytest.param("wordcount_plain", 2, marks=pytest.mark.soak),
        ("keyed", 1),
        pytest.param("keyed", 2, marks=pytest.mark.soak),
    ],
)
def test_throughput_programs_give_the_output_of_the_polars_loop(
    name: str, workers: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(name, workers=workers, json=True, size=SIZE, runs=1, data=folder)
    rows = rows_of(capsys)
    exchanged = ["exchanged"] if (name, workers) == ("keyed", 2) else []
    assert [row["system"] for row in rows] == ["falkirk", *exchanged, "polars_loop"]
    for row in rows:
        assert "note" not in row
        assert (row["bench"], row["workers"], row["unit"], row["runs"]) == (name, workers, "records/s", 1)
        assert row["value"] > 0


@pytest.mark.check
def test_polars_word_count_agrees_with_a_python_dictionary(folder: Path) -> None:
    words = data.ensure("words", SIZE, folder)
    so_far: Counter[str] = Counter()
    rows = total = 0
    for file in sorted((words / "epochs").glob("*.parquet")):
        epoch = Counter(pl.read_parquet(file)["word"].to_list())
        so_far += epoch
        rows += len(epoch)
        total += sum(so_far[word] for word in epoch)
    task = harness.BenchTask(Variant("polars_loop", "polars_wordcount.py"), 1, SIZE, words, harness.current_python())
    (figure,) = harness.run_once(task)
    assert figure["check"] == {"rows": rows, "total": total}


@pytest.mark.check
@pytest.mark.parametrize(("name", "size", "unit"), [("latency", 200, "us"), ("loop", 50, "us/iteration")])
def test_latency_and_loop_are_measured_beside_a_round_trip(
    name: str, size: int, unit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(name, workers=2, json=True, size=size, runs=1)
    rows = rows_of(capsys)
    assert [row["system"] for row in rows] == ["falkirk", "zmq_round_trip"]
    for row in rows:
        assert (row["unit"], row["runs"]) == (unit, 1)
        assert 0 < row["min"] <= row["value"] <= row["max"]


@pytest.mark.check
@pytest.mark.parametrize(
    ("name", "size", "other"), [("column_verbs", 200, "polars_collect"), ("column_components", 500, "scipy")]
)
def test_verbs_of_columns_give_the_answer_of_others(
    name: str, size: int, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(name, workers=1, json=True, size=size, runs=1)
    rows = rows_of(capsys)
    assert [row["system"] for row in rows] == ["falkirk", other]
    for row in rows:
        assert "note" not in row
        assert row["value"] > 0


@pytest.mark.check
def test_scale_reports_a_row_a_size(capsys: pytest.CaptureFixture[str]) -> None:
    main("scale", workers=1, json=True, size=20, runs=1)
    rows = {(row["system"], row["workers"]): row for row in rows_of(capsys)}
    assert {("falkirk_idle_10", 1), ("falkirk_idle_20", 1), ("falkirk_idle_slope", 1)} <= rows.keys()
    assert rows["falkirk_messages", 1]["value"] == 0
    assert rows["falkirk_messages", 2]["value"] > 0
    assert rows["falkirk_progress_updates", 16]["value"] > rows["falkirk_progress_updates", 2]["value"]


def test_absent_peer_is_reported_and_is_no_failure(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(bench_command)
    arguments = ["loop", "--peers", "--json", "--workers", "1", "--size", "50", "--runs", "1"]
    result = CliRunner().invoke(app, [*arguments, "--peers-python", str(tmp_path / "no-python")])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["system"] for row in rows] == ["falkirk", "pathway"]
    assert (rows[1]["value"], rows[1]["runs"], rows[1]["note"]) == (None, 0, "not installed")


def test_table_names_every_system_and_compares_it_with_falkirk() -> None:
    fast = harness.Row("latency", "falkirk", 1, 10.0, "us", 3, 9.0, 11.0)
    slow = harness.Row("latency", "slow_system", 1, 25.0, "us", 3, 24.0, 26.0)
    absent = harness.missing(BENCHES["latency"], Variant("pathway", ""), 1, harness.NOT_INSTALLED)
    console = Console(width=120, record=True, file=StringIO())
    show(console, BENCHES["latency"], [fast, slow, absent])
    shown = console.export_text()
    assert "2.50" in next(line for line in shown.splitlines() if "slow_system" in line)
    assert "pathway, workers=1: not installed" in shown


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [("latencies", {}, "wordcount"), ("loop", {"workers": 0}, "--workers"), ("loop", {"runs": 0}, "--runs")],
)
def test_senseless_command_is_refused_with_what_to_do(name: str, options: dict[str, int], says: str) -> None:
    with pytest.raises(FalkirkError, match=says):
        main(name, **options)


def test_input_is_the_same_every_time_and_holds_what_it_says(folder: Path, tmp_path: Path) -> None:
    first, second = data.ensure("pairs", SIZE, folder), data.ensure("pairs", SIZE, tmp_path)
    whole = pq.read_table(first / "whole.parquet")
    assert whole.equals(pq.read_table(second / "whole.parquet"))
    assert len(whole) == SIZE == data.records_of(first)
    epochs = [pl.read_parquet(file) for file in sorted((first / "epochs").glob("*.parquet"))]
    assert len(epochs) == 10
    assert pl.concat(epochs).equals(pl.from_arrow(whole))


@pytest.mark.check
def test_dictionaries_are_in_the_files_only_where_they_should_be(folder: Path) -> None:
    for kind, expected in (("words", True), ("words_plain", False)):
        file = pq.ParquetFile(data.ensure(kind, SIZE, folder) / "whole.parquet")
        assert file.metadata.row_group(0).column(0).has_dictionary_page is expected


def test_word_frequencies_follow_the_law(folder: Path) -> None:
    counts = pl.read_parquet(data.ensure("words", 200_000, folder) / "whole.parquet")["word"].value_counts(sort=True)
    assert counts["count"][0] / counts["count"][1] == pytest.approx(2, rel=0.1)
    assert counts["count"][0] / counts["count"][9] == pytest.approx(10, rel=0.15)


def test_failing_program_leaves_a_row_that_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "breaks.py").write_text("raise SystemExit('the disk is full')")
    (tmp_path / "works.py").write_text("print('{\"value\": 3.0}')")
    monkeypatch.setattr(harness, "programs_folder", lambda: tmp_path)
    rows = measure_two(Variant("breaks", "breaks.py"), Variant("works", "works.py"))
    assert (rows[0].value, rows[0].runs) == (None, 0)
    assert "the disk is full" in (rows[0].note or "")
    assert (rows[1].value, rows[1].runs) == (3.0, 3)


def test_system_with_another_output_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rows_out, name in ((5, "right"), (4, "wrong")):
        line = json.dumps({"value": 1.0, "check": {"rows": rows_out}})
        (tmp_path / f"{name}.py").write_text(f"print({line!r})")
    monkeypatch.setattr(harness, "programs_folder", lambda: tmp_path)
    rows = measure_two(Variant("right", "right.py"), Variant("wrong", "wrong.py"))
    assert rows[0].note is None
    assert "differs from that of right" in (rows[1].note or "")


def test_only_answers_to_the_same_question_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, rows_out in (("one", 5), ("other", 4)):
        line = json.dumps({"value": 1.0, "check": {"rows": rows_out}})
        (tmp_path / f"{name}.py").write_text(f"print({line!r})")
    monkeypatch.setattr(harness, "programs_folder", lambda: tmp_path)
    one, other = Variant("one", "one.py", question="a"), Variant("other", "other.py", question="b")
    assert [row.note for row in measure_two(one, other)] == [None, None]
    rows = measure_two(one, replace(other, question="a"))
    assert "differs from that of one" in (rows[1].note or "")


NEXMARK = [variant for variant in BENCHES["nexmark"].variants if variant.package is None]


@pytest.mark.check
@pytest.mark.parametrize(
    "query", [pytest.param(each.part, marks=[pytest.mark.soak] * (each.part not in ("q4", "q5"))) for each in NEXMARK]
)
def test_queries_of_nexmark_are_answered_as_by_polars(query: str, capsys: pytest.CaptureFixture[str]) -> None:
    main("nexmark", workers=1, json=True, size=12_000, runs=1, only=[query])
    (row,) = rows_of(capsys)
    assert "note" not in row
    assert (row["system"], row["unit"]) == (query, "ratio")
    assert row["value"] > 0  # type: ignore[operator]


def test_an_answer_that_is_not_that_of_polars_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that gives each bid but the first."""
    programs = harness.programs_folder()
    (tmp_path / "wrong.py").write_text(
        f"import sys\nsys.path[:0] = [{str(programs)!r}]\n"
        "from auctions import measured\n"
        "measured('q0', 6000, lambda frames: lambda: [frames['bids'][0][1:], *frames['bids'][1:]])\n"
    )
    monkeypatch.setattr(harness, "programs_folder", lambda: tmp_path)
    (row,) = measure_two(Variant("wrong", "wrong.py"))
    assert row.value is None
    assert "q0: {'rows': 5473, " in (row.note or "")
    assert "by Polars {'rows': 5474, " in (row.note or "")


def test_each_query_of_nexmark_has_bytewax_beside_it() -> None:
    beside = [variant for variant in BENCHES["nexmark"].variants if variant.package == "bytewax"]
    assert [(each.part, each.question) for each in beside] == [(each.part, each.question) for each in NEXMARK]
    assert {each.system for each in beside}.isdisjoint(each.system for each in NEXMARK)


def test_runs_are_interleaved_and_the_median_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import pathlib\nlog = pathlib.Path(__file__).parent / 'log'\nold = log.read_text() if log.exists() else ''\n"
    )
    program += "import sys\nlog.write_text(old + pathlib.Path(__file__).stem)\n"
    program += "print('{\"value\": %d}' % len(old))"
    for name in "ab":
        (tmp_path / f"{name}.py").write_text(program)
    monkeypatch.setattr(harness, "programs_folder", lambda: tmp_path)
    rows = measure_two(Variant("a", "a.py"), Variant("b", "b.py"))
    assert (tmp_path / "log").read_text() == "ababab"
    assert [(row.value, row.min, row.max) for row in rows] == [(2, 0, 4), (3, 1, 5)]


def test_processor_time_of_several_workers_is_compared_with_one_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = f"pathlib.Path({str(tmp_path / 'log')!r})"
    program = f"import pathlib, sys\nold = {log}.read_text() if {log}.exists() else ''\n{log}.write_text(old + 'x')\n"
    program += "workers = int(sys.argv[sys.argv.index('--workers') + 1])\n"
    seconds = "(1 + len(old) // 2) * (1 if workers == 1 else 1.5)"  # each round is slower, and both of it are
    (tmp_path / "works.py").write_text(program + f'print(\'{{"value": 1, "cpu_seconds": %f}}\' % ({seconds}))')
    monkeypatch.setattr(harness, "programs_folder", lambda: tmp_path)
    bench = Bench("made_up", "", "s", 1, (Variant("falkirk", "works.py"), Variant("sends", "works.py", workers=(2,))))
    own, sends = (
        harness.measure(
            bench,
            [
                harness.BenchTask(v, w, 1, None, harness.current_python())
                for v, w in ((bench.variants[0], 1), (second, 2))
            ],
            3,
            lambda task: None,
        )
        for second in bench.variants
    )
    assert [row.cpu_ratio for row in own] == [None, 1.5]
    assert [(row.system, row.cpu_ratio) for row in sends] == [("falkirk", None), ("sends", 1.5)]
    console = Console(width=160, record=True, file=StringIO())
    show(console, bench, own)
    assert "1.5" in console.export_text().splitlines()[-1]


def measure_two(*variants: Variant) -> list[harness.Row]:
    bench = Bench("made_up", "", "s", 1, variants)
    tasks = [harness.BenchTask(variant, 1, 1, None, harness.current_python()) for variant in variants]
    return harness.measure(bench, tasks, 3, lambda task: None)


def test_every_program_is_there() -> None:
    for bench in BENCHES.values():
        for variant in bench.variants:
            assert (harness.programs_folder() / variant.program).is_file()
