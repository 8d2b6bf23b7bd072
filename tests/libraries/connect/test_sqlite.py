"""Rows in a real SQLite database, exactly once."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from libraries.connect import SqliteSink
from tests.libraries.connect.places import files_limited_to, read_only_folder
from timely.errors import SinkError


def query(path: Path, text: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(text).fetchall()


@pytest.mark.parametrize("make", [lambda rows: rows, pa.Table.from_pylist, pl.DataFrame])
def test_rows_of_all_kinds_arrive_once(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    rows = [{"word": f"w{i}", "n": i, "x": i / 2, "ok": i % 2 == 0} for i in range(6)]
    sink = SqliteSink(path, "counts")
    for _ in range(2):  # the second time is a replay
        writer = sink.open(0, 1)
        writer.write(0, make(rows[:2]))
        writer.write(1, make(rows[4:]))
        writer.write(0, make(rows[2:4]))
        writer.commit(0)
        writer.commit(1)
        writer.close()
    assert query(path, "SELECT word, n, x, ok FROM counts ORDER BY n") == [
        (f"w{i}", i, i / 2, int(i % 2 == 0)) for i in range(6)
    ]
    assert query(path, "SELECT worker, epoch FROM _falkirk_marks") == [(0, 0), (0, 1)]
    assert query(path, "SELECT type FROM pragma_table_info('counts')") == [
        ("TEXT",),
        ("INTEGER",),
        ("REAL",),
        ("INTEGER",),
    ]


def test_nothing_shows_before_the_commit_nor_after_an_abort(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    writer = SqliteSink(path, "t", ["a", "b"]).open(0, 1)
    writer.write(0, [(1, 2)])
    writer.commit(0)
    writer.write(1, [(3, 4)])
    assert query(path, "SELECT * FROM t") == [(1, 2)]
    writer.abort()
    writer.commit(1)
    assert query(path, "SELECT * FROM t") == [(1, 2)]
    writer.close()


def test_an_epoch_fails_as_a_whole_and_can_be_committed_again(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    writer = SqliteSink(path, "t", ["a"]).open(0, 1)
    writer.write(0, [(1,)])
    writer.write(0, [({"no": "such type"},)])
    with pytest.raises(SinkError, match=r"column 'a': SQLite holds numbers, text and bytes, not dict"):
        writer.commit(0)
    assert query(path, "SELECT name FROM sqlite_master WHERE name = 't'") == []
    writer.write(0, [(1,), (2,)])
    writer.commit(0)
    assert query(path, "SELECT a FROM t") == [(1,), (2,)]
    writer.close()


def test_values_are_stored_as_documented(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    writer = SqliteSink(path, "t", ["a"]).open(0, 1)
    values = [None, b"\0", datetime.date(2024, 1, 2), decimal.Decimal("1.10"), np.int32(7), True]
    writer.write(0, [(value,) for value in values])
    writer.commit(0)
    assert [row[0] for row in query(path, "SELECT a FROM t")] == [None, b"\0", "2024-01-02", "1.10", 7, 1]
    writer.write(1, [(1 << 70,)])
    with pytest.raises(SinkError, match="64 bits"):
        writer.commit(1)
    writer.close()


@pytest.mark.parametrize(
    ("columns", "batch", "message"),
    [
        (None, [("a", 1)], "need columns="),
        (["a", "b"], [("a", 1, 2)], r"a tuple of 2 values \(a, b\)"),
        (["a", "b"], [{"a": 1}], "no column 'b'"),
        (["a", "z"], pa.table({"a": [1]}), "no column 'z'"),
        (None, [{"other": 1}], "the table has no column 'other'; it has 'a', 'b'"),
    ],
)
def test_rows_that_do_not_fit_say_what_is_wrong(columns: Any, batch: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a, b NOT NULL)")
    writer = SqliteSink(path, "t", columns).open(0, 1)
    writer.write(0, batch)
    with pytest.raises(SinkError, match=message):
        writer.commit(0)
    writer.close()


def test_a_rule_of_the_table_that_is_broken_rolls_back(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a PRIMARY KEY)")
    writer = SqliteSink(path, "t").open(0, 1)
    writer.write(0, [{"a": 1}, {"a": 1}])
    with pytest.raises(SinkError, match=r"UNIQUE.*breaks a rule of the table"):
        writer.commit(0)
    assert query(path, "SELECT * FROM t") == query(path, "SELECT * FROM _falkirk_marks") == []
    writer.close()


def test_names_that_need_quoting_work(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    writer = SqliteSink(path, 'select "x"').open(0, 1)
    writer.write(0, [{'from "y"': 1, "group": 2}])
    writer.commit(0)
    writer.close()
    assert query(path, 'SELECT "from ""y""", "group" FROM "select ""x"""') == [(1, 2)]


def test_workers_write_to_one_database_in_turns(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    errors: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            writer = SqliteSink(path, "t", ["worker", "epoch"]).open(worker, 3)
            for epoch in range(15):
                writer.write(epoch, [(worker, epoch)] * 5)
                writer.commit(epoch)
            writer.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(w,)) for w in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert query(path, "SELECT worker, epoch, count(*) FROM t GROUP BY 1, 2") == [
        (w, e, 5) for w in range(3) for e in range(15)
    ]
    assert query(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_lock_that_is_not_let_go_is_named(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    writer = SqliteSink(path, "t", busy_seconds=0.05).open(0, 1)
    writer.write(0, [{"a": 1}])
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SinkError, match="Another program writes to it"):
            writer.commit(0)
    writer.close()


def test_places_that_cannot_hold_a_database_say_why(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="this is a folder"):
        SqliteSink(tmp_path, "t").open(0, 1)
    with pytest.raises(SinkError, match="there is no folder"):
        SqliteSink(tmp_path / "no" / "out.db", "t").open(0, 1)
    (tmp_path / "text.db").write_text("this is not a database, it is text" * 99)
    with pytest.raises(SinkError, match="not a sound SQLite database"):
        SqliteSink(tmp_path / "text.db", "t").open(0, 1)
    with read_only_folder() as folder, pytest.raises(SinkError, match="may not write here"):
        SqliteSink(folder / "out.db", "t").open(0, 1)
    for table in ("_falkirk_marks", "sqlite_x"):
        with pytest.raises(SinkError, match="reserved"):
            SqliteSink(tmp_path / "out.db", table)


def test_a_full_disk_rolls_the_epoch_back(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    writer = SqliteSink(path, "t").open(0, 1)
    writer.write(0, [{"a": "x"}])
    writer.commit(0)
    writer.write(1, [{"a": f"{i} and more"} for i in range(50_000)])
    with files_limited_to(1 << 18), pytest.raises(SinkError, match=r"out\.db, table 't': "):
        writer.commit(1)
    assert query(path, "SELECT count(*) FROM t") == query(path, "SELECT count(*) FROM _falkirk_marks") == [(1,)]
    writer.close()


WRITE_FOR_GOOD = """
import sys
from libraries.connect import FileSink, SqliteSink
rows = lambda epoch: [{"epoch": epoch, "i": i} for i in range(20)]
database, files = SqliteSink(sys.argv[1], "t"), FileSink(sys.argv[2])
database, files = (sink.for_job("job", name).open(0, 1) for sink, name in ((database, "db"), (files, "files")))
print("ready", flush=True)
for epoch in range(1000000):
    for writer in (database, files):
        writer.write(epoch, rows(epoch))
        writer.commit(epoch)
"""


def test_kill_9_leaves_whole_epochs_and_a_replay_completes_them(tmp_path: Path) -> None:
    path, folder = tmp_path / "out.db", tmp_path / "out"
    root = Path(__file__).parents[3]
    delays = random.Random(7)
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITE_FOR_GOOD, str(path), str(folder)], stdout=subprocess.PIPE, cwd=root
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(delays.uniform(0.02, 0.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        epochs = query(path, "SELECT epoch FROM _falkirk_marks ORDER BY 1")
        assert epochs == [(e,) for e in range(len(epochs))]
        assert query(path, "SELECT epoch, count(*) FROM t GROUP BY 1") == [(e, 20) for (e,) in epochs]
        files = sorted(folder.glob("epoch-*"))
        assert all(len(file.read_text().splitlines()) == 20 for file in files)
        assert len(list(folder.glob(".epoch-*"))) <= 1
