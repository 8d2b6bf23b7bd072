"""Payments are booked before anybody hears of them; what follows from them takes its time. All seven policies in one program.

    booking   Eager()                  each payment is durable, with the balances, before it leaves the region
    watch     Ephemeral()              says which payments were large: nothing is kept for that
    takings   Batch(log_outputs=True)  what each shop took in an epoch; the report's failures never make it work again
    report    Lazy(every="500ms")      the best epoch of each shop so far: a state that is saved while it goes on
    alarms    LogHistory()             an operator without checkpoint code: it comes back by replay
    visits    AtLeastOnce()            who was in which shop: after a failure some of it comes twice, and nobody goes back
    visitors  Snapshot(every="2s")     how many have been in each shop, each counted once: saved as one, by itself

    falkirk run examples/payments.py
    falkirk run examples/payments.py -w 2 --store job
    falkirk graph examples/payments.py       # shows the gates at which what leaves `booking` waits until it is durable

With a store, kill any of its processes with `kill -9`: the rows of `booked/` and `best/` are the same, and the last number of
each shop in `visitors/` is; a payment that the console has shown is in `booked/` or will be. Without a store policies have no
effect.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import falkirk
from falkirk import (
    AtLeastOnce,
    Batch,
    Context,
    Dataflow,
    Eager,
    Ephemeral,
    Lazy,
    LogHistory,
    Operator,
    Sink,
    Snapshot,
)

ACCOUNTS, SHOPS = 30, 5
LARGE, MUCH = 900, 5_000


def build(
    payments: int = 20_000,
    per_second: float = 4_000,
    per_epoch: int = 100,
    folder: str | Path = "payments",
    console: Sink | None = None,
    told: str | Path | None = None,
) -> Dataflow:
    """`payments` in all, and as many visits; booked ones and what is known of shops go to `folder`, the rest to `console`.

    `told`: a folder with files that grow, in place of the console.
    """
    flow = Dataflow("payments")
    with flow.region("booking", policy=Eager()):
        paid = flow.source("payments", falkirk.Rate(payment, per_second, payments, epoch_every=per_epoch))
        paid.map(as_row, name="rows").to(falkirk.FileSink(Path(folder) / "booked"), name="booked")
        balances = paid.map(lambda p: (p[1], p[3]), name="by-account").keyed().sum(name="balances")
    with flow.region("watch", policy=Ephemeral()):
        large = paid.filter(lambda p: p[3] >= LARGE, name="large")
        news = large.map(lambda p: f"{p[1]} paid {p[3]} to {p[2]}", name="news")
        news.to(Appended(told, "shown") if told else console or falkirk.Console(), name="shown")
    with flow.region("takings", policy=Batch(log_outputs=True)):
        takings = paid.map(lambda p: (p[2], p[3]), name="by-shop").keyed().sum(over="time", name="takings")
    with flow.region("report", policy=Lazy(every="500ms")):
        best = takings.max(name="best").records()
        best.map(lambda pair: {"shop": pair[0], "most": pair[1]}).to(
            falkirk.FileSink(Path(folder) / "best"), name="best-out"
        )
    alarms = balances.records().exchange(by=lambda pair: pair[0]).unary("alarms", Alarms).policy(LogHistory())
    alarms.to(Appended(told, "alarms-out") if told else console or falkirk.Console("alarm: "), name="alarms-out")
    with flow.region("visits", policy=AtLeastOnce()):
        seen = flow.source("seen", falkirk.Rate(payment, per_second, payments, epoch_every=per_epoch))
        visits = seen.map(lambda p: (p[2], p[1]), name="visits")
    with flow.region("visitors", policy=Snapshot(every="2s")):
        visitors = visits.distinct(name="visitors").keyed().count(name="by-shop-once").records()
        visitors.map(lambda pair: {"shop": pair[0], "visitors": pair[1]}).to(
            falkirk.FileSink(Path(folder) / "visitors"), name="visitors-out", require="convergent"
        )
    return flow


def payment(number: int) -> tuple[int, str, str, int]:
    """A payment: its number, an account, a shop and an amount. Made up, and always the same for the same number."""
    random = Random(number)
    return number, f"a{random.randrange(ACCOUNTS):02}", f"shop-{random.randrange(SHOPS)}", random.randrange(1, 1000)


def as_row(paid: tuple[int, str, str, int]) -> dict[str, Any]:
    """A payment as a line of a file."""
    return dict(zip(("number", "account", "shop", "amount"), paid))


class Alarms(Operator):
    """Says of each account when it has paid `MUCH` more than when it last said so, in plain attributes."""

    repeats_over = "time"

    def __init__(self) -> None:
        self._now = dict[tuple[int, ...], dict[str, int]]()
        self._said = dict[str, int]()

    def on_batch(self, ctx: Context, port: int, time: tuple[int, ...], batch: Any) -> None:
        self._now.setdefault(time, {}).update(batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: tuple[int, ...]) -> None:
        found = []
        for account, balance in sorted(self._now.pop(time).items()):
            if balance - self._said.get(account, 0) >= MUCH:
                self._said[account] = balance
                found.append(f"{account} has paid {balance}")
        ctx.send(found)


class Appended(Sink):
    """Is told each epoch at once, as a console is: a line of a file for each, with worker, epoch and records."""

    def __init__(self, folder: str | Path, name: str) -> None:
        self._file = Path(folder) / f"{name}.jsonl"

    def open(self, worker: int, workers: int) -> Appending:
        """A worker's writer. All append to the same file."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        return Appending(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), worker)


class Appending:
    """See `Appended`."""

    def __init__(self, file: int, worker: int) -> None:
        self._file = file
        self._worker = worker
        self._held: dict[int, list[Any]] = {}

    def write(self, epoch: int, batch: Any) -> None:
        """Hold some records of an epoch."""
        self._held.setdefault(epoch, []).extend(batch)

    def commit(self, epoch: int) -> None:
        """Say them in one line, at once."""
        line = json.dumps([self._worker, int(epoch), self._held.pop(epoch, [])])
        os.write(self._file, f"{line}\n".encode())

    def abort(self) -> None:
        """Forget what was not said."""
        self._held.clear()

    def close(self) -> None:
        """Let the file go."""
        os.close(self._file)
