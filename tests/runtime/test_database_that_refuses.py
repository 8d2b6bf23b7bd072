"""A database that refuses rows in the midst of a job with an eager region: what was committed stays, and the job can go on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import falkirk
from libraries.columns.verbs.dataflow import Dataflow
from timely.errors import FalkirkError


def build(folder: str) -> Dataflow:
    flow = Dataflow("orders")
    with flow.region("orders", policy=falkirk.Eager()):
        orders = flow.source("orders", falkirk.Iterable(range(40), batch=2, epoch_every=2))
        orders.map(lambda n: (n, n * n)).to(
            falkirk.SqliteSink(Path(folder, "orders.db"), "orders", ["n", "square"]), name="booked", require="precise"
        )
    return flow


def rows(database: Path) -> list[int]:
    with closing(sqlite3.connect(database)) as connection:
        return [n for (n,) in connection.execute("select n from orders order by n")]


@pytest.mark.check
@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_lost_or_half_there_and_the_job_goes_on_when_the_database_takes_it(
    workers: int, tmp_path: Path
) -> None:
    database = tmp_path / "orders.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("create table orders (n integer, square integer)")
        connection.execute(
            "create trigger refuse before insert on orders when new.n = 21 begin select raise(abort, 'no such order'); end"
        )
    with pytest.raises(FalkirkError) as refused:
        falkirk.run(build(str(tmp_path)), workers=workers, store=tmp_path / "store")
    assert "booked" in str(refused.value)
    assert "no such order" in str(refused.value)
    there = rows(database)
    assert there == list(range(len(there)))
    assert len(there) == 20, "the epochs before, and of the one that was refused nothing"

    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("drop trigger refuse")
    falkirk.run(build(str(tmp_path)), workers=workers, store=tmp_path / "store")
    assert rows(database) == list(range(40))
