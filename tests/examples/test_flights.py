"""The demo: some days of real flights, with and without a killed worker, and flights made up so that the answer is known."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from runtime.run import run
from runtime.session.cluster import Cluster
from runtime.session.job import Result

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import flights  # noqa: E402
import flights_check  # noqa: E402
import flights_data  # noqa: E402
import flights_demo  # noqa: E402
from flights_check import Findings  # noqa: E402


@pytest.fixture(scope="module")
def year() -> pl.DataFrame:
    return flights_data.read_package()


@pytest.fixture(scope="module")
def two_weeks(year: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The worst two weeks of the year."""
    file = tmp_path_factory.mktemp("flights") / "two_weeks.parquet"
    flights_data.write(year.filter(pl.col("day").is_between(173, 186)), file)
    return file


def test_package_holds_all_flights_of_the_year_in_order_of_schedule(year: pl.DataFrame) -> None:
    assert year.height == 336_776
    assert year["flight"].to_list() == list(range(336_776))
    assert year["hour"].is_sorted()
    assert year["hour"].min() == 0
    assert year["hour"].max() == 8_754
    assert flights_data.day_of(year["day"].max()) == date(2013, 12, 31)
    assert year["late"].null_count() == year["arr_delay"].null_count() == 9_430


@pytest.mark.soak
def test_one_worker_finds_what_polars_and_networkx_find(two_weeks: Path) -> None:
    found = Findings.of(run(flights.build(two_weeks)))
    assert flights_check.compare(found, two_weeks) == []
    assert max(hops for _, hops in found.causes.values()) >= 3, "the loop must have to go round several times"


@pytest.mark.soak
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_whose_messages_overtake_each_other_find_the_same(
    year: pl.DataFrame, tmp_path: Path, workers: int
) -> None:
    flights_data.write(year.filter(pl.col("day").is_between(173, 175)), tmp_path / "days.parquet")
    cluster: Any = Cluster(flights.build(tmp_path / "days.parquet"), workers, seed=workers)
    cluster.run()
    assert flights_check.compare(Findings.of(cluster), tmp_path / "days.parquet") == []


@pytest.mark.check
def test_demo_kills_a_worker_shows_what_that_did_and_proves_that_nobody_can_tell(
    two_weeks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flights_demo.main(workers=2, file=two_weeks) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for said in (
        "its page is at http://127.0.0.1:",
        "kill -9",
        "that was worker 1",
        "Recovered after",
        "Where the work went on",
        "history",
        "exactly as Polars and networkx have them",
        "none lost, none twice",
        "Airlines that come late most often",
        "it began with",
    ):
        assert said in shown


@pytest.mark.soak
def test_quiet_demo_without_the_kill_prints_the_verdict_alone(
    two_weeks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flights_demo.main(workers=1, quiet=True, kill=False, file=two_weeks) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("✓")
    assert "without a failure" not in shown


@pytest.mark.soak
def test_demo_fails_when_a_result_is_wrong(
    two_weeks: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that hands on the wrong label must not pass the check."""

    def blame_the_flight_before(met: Any) -> Any:
        before, ((_, hops, _), (after, minutes)) = met
        return after, (before, hops + 1, minutes)

    monkeypatch.setattr(flights, "inherit", blame_the_flight_before)
    assert flights_demo.verdicts(run(flights.build(two_weeks)), None, two_weeks) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("✗")
    assert "causes" in shown


@pytest.mark.soak
def test_demo_fails_when_a_row_came_out_twice_or_not_at_all(
    two_weeks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of running totals the last row counts, so that nobody but the other run can tell."""
    right = run(flights.build(two_weeks))
    rows = {capture: right.captured(capture) for capture in flights_check.CAPTURES}
    (time, batch), *_ = [entry for entry in rows["knock-on"] if entry[1]]
    twice = Result(1.0, right.stats, {}, {**rows, "knock-on": [*rows["knock-on"], (time, batch)]})
    lost = Result(1.0, right.stats, {}, {**rows, "causes": rows["causes"][:-1]})
    assert flights_check.differences(right, right) == []
    assert flights_demo.verdicts(twice, right, two_weeks) == 1
    assert f"knock-on, hour {time[0]}: {len(batch)} rows too many, 0 missing" in capsys.readouterr().out
    assert flights_demo.verdicts(lost, right, two_weeks) == 1
    assert "1 differences from the run without a failure" in capsys.readouterr().out


def test_check_names_every_value_that_differs(two_weeks: Path) -> None:
    right = flights_check.expected(two_weeks)
    (carrier, totals), *_ = right.carriers.items()
    cause, _ = min(right.knock_on.items())
    wrong = replace(
        right,
        carriers={**right.carriers, carrier: (totals[0] + 1, *totals[1:])},
        stranded={**right.stranded, "XX": 1},
        knock_on={key: value for key, value in right.knock_on.items() if key != cause},
    )
    assert flights_check.compare(right, two_weeks) == []
    differences = flights_check.compare(wrong, two_weeks)
    assert [line.split(":")[0] for line in differences] == [f"carriers {carrier}", "stranded XX", f"knock_on {cause}"]


@pytest.mark.check
def test_chain_of_late_flights_ends_with_a_flight_in_time_and_with_the_day(tmp_path: Path) -> None:
    rows = [  # hour, day, aircraft, minutes behind schedule
        (0, 1, "A", 15),  # 0: late by the least that counts
        (0, 1, "B", 14),  # 1: in time, by a minute
        (0, 1, "A", 30),  # 2: A again in the same hour: caused by 0
        (3, 1, "B", 20),  # 3: begins a chain
        (3, 1, "A", None),  # 4: did not arrive, which neither continues nor ends a chain
        (5, 1, "A", 99),  # 5: caused by 0
        (6, 1, "A", -5),  # 6: early: the chain is over
        (7, 1, "A", 40),  # 7: begins another one
        (20, 2, "A", 50),  # 8: another day, another chain
        (20, 2, "B", 60),  # 9: B was late last, but the day before
        (22, 2, "B", 16),  # 10: caused by 9
    ]
    table = pl.DataFrame(rows, schema=["hour", "day", "tailnum", "arr_delay"], orient="row").with_row_index("flight")
    late = (pl.col("arr_delay") >= flights_data.LATE).cast(pl.Int64)
    file = tmp_path / "made_up.parquet"
    flights_data.write(
        table.with_columns(pl.col("flight").cast(pl.Int64), late=late, carrier=pl.lit("AA"), route=pl.lit("JFK-LAX")),
        file,
    )
    found = Findings.of(run(flights.build(file)))
    assert found.causes == {
        0: (0, 0), 2: (0, 1), 5: (0, 2), 3: (3, 0), 7: (7, 0), 8: (8, 0), 9: (9, 0), 10: (9, 1),
    }  # fmt: skip
    assert found.knock_on == {0: (3, 144), 3: (1, 20), 7: (1, 40), 8: (1, 50), 9: (2, 76)}
    assert found.carriers == {"AA": (10, 8, 339, 99)}
    assert found.routes == {"JFK-LAX": (10, 8, 339, 99)}
    assert found.stranded == {"AA": 1}
    assert flights_check.compare(found, file) == []
