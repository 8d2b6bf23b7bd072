"""Files of output: bounded, numbered on, in order, and readable around damage."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from runtime.page import logs
from runtime.page.logs import HALF_BYTES, LONGEST, LogWriter, log_places, read_lines, read_log


def test_lines_are_numbered_on_over_writers_and_asked_for_by_number(tmp_path: Path) -> None:
    LogWriter(tmp_path, "worker-0").write(7, "o", [b"one", b"", b"three"])
    LogWriter(tmp_path, "worker-0").write(8, "e", [b"four"])
    found = read_log(tmp_path, "worker-0")
    assert [(line.n, line.pid, line.stream, line.text) for line in found] == [
        (1, 7, "o", "one"),
        (2, 7, "o", ""),
        (3, 7, "o", "three"),
        (4, 8, "e", "four"),
    ]
    assert [line.n for line in read_log(tmp_path, "worker-0", since=2)] == [3, 4]
    assert [line.n for line in read_log(tmp_path, "worker-0", most=1)] == [4]


def test_files_stay_small_and_have_the_newest_lines(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "monitor")
    for number in range(3000):
        writer._second, writer._room = int(logs.time.time()), 1 << 40
        writer.write(1, "o", [b"%d " % number + b"x" * 400])
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) <= HALF_BYTES
    found = read_log(tmp_path, "monitor")
    assert [line.n for line in found] == list(range(found[0].n, 3001))
    assert len(found) * 400 > HALF_BYTES


def test_a_flood_costs_no_more_than_its_bound_and_says_how_much_is_missing(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "worker-1")
    writer.write(1, "o", [b"y" * 1000] * 10_000)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3 * HALF_BYTES
    missing = writer._left_out
    assert missing > 9000
    writer._second = 0  # a second later
    writer.write(1, "o", [b"calm"])
    texts = [line.text for line in read_log(tmp_path, "worker-1")][-2:]
    assert texts == [f"{missing} lines more are not kept: too much in a second", "calm"]


def test_long_lines_are_divided_and_others_kept_whole(tmp_path: Path) -> None:
    LogWriter(tmp_path, "worker-1").write(1, "e", [b"z" * (LONGEST + 5), "é".encode()])
    assert [len(line.text) for line in read_log(tmp_path, "worker-1")] == [LONGEST, 5, 1]


def test_only_names_of_places_are_read(tmp_path: Path) -> None:
    for name in ("worker-10.log", "worker-2.log", "monitor.log", "worker-2.1.log", "secret", "worker-2.log.1", "x.log"):
        (tmp_path / name).write_bytes(b"1 1000 5 o text\n")
    assert log_places(tmp_path) == ["worker-2", "worker-2.1", "worker-10", "monitor"]
    assert read_log(tmp_path, "../secret") == read_log(tmp_path, "secret") == []
    (tmp_path / "worker-3.log").symlink_to(tmp_path / "secret")
    assert read_log(tmp_path, "worker-3") == []


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").write_bytes(b"a file")
    LogWriter(tmp_path / "logs", "worker-0").write(1, "o", [b"lost"])
    assert read_log(tmp_path / "logs", "worker-0") == log_places(tmp_path / "logs") == []


@given(st.binary(max_size=300))
def test_damage_hides_only_the_lines_that_it_hits(damage: bytes) -> None:
    data = b"1 1000 5 o before\n" + damage + b"\n2 2000 5 e after\n"
    texts = [line.text for line in read_lines(data)]
    assert (texts[0], texts[-1]) == ("before", "after")
