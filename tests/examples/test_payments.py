"""Payments, on real processes that are killed, and under simulated failures."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from falkirk.simulate.judging import observed
from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from recovery.guarantees.promises import Alike, Grade, promises
from recovery.layout import lay_out
from recovery.policy import POLICIES
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.soak.kills import Phase, busy, in_recovery, kill
from tests.support.beside import run_beside
from tests.support.processes import monitor_pid
from timely.dataflow.plan import compile_plan

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import payments  # noqa: E402

PER_EPOCH = 20


def rows_in(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """The content of the files of all workers, by epoch."""
    found: dict[int, list[dict[str, Any]]] = {}
    for file in sorted(folder.glob("epoch-*.jsonl")):
        found.setdefault(int(file.name.split("-")[1]), []).extend(map(json.loads, file.read_text().splitlines()))
    return found


def said_at_once(count: int) -> dict[str, dict[tuple[int, ...], list[str]]]:
    """What the outputs that are told at once must say in each epoch."""
    balances: dict[str, int] = {}
    alarmed: dict[str, int] = {}
    shown: dict[tuple[int, ...], list[str]] = {}
    alarms: dict[tuple[int, ...], list[str]] = {}
    for first in range(0, count, PER_EPOCH):
        time = (first // PER_EPOCH,)
        paid = [payments.payment(number) for number in range(first, min(count, first + PER_EPOCH))]
        shown[time] = sorted(
            f"{who} paid {amount} to {shop}" for _, who, shop, amount in paid if amount >= payments.LARGE
        )
        for _, who, _, amount in paid:
            balances[who] = balances.get(who, 0) + amount
        for who in sorted({who for _, who, _, _ in paid}):
            if balances[who] - alarmed.get(who, 0) >= payments.MUCH:
                alarmed[who] = balances[who]
                alarms.setdefault(time, []).append(f"{who} has paid {balances[who]}")
    return {"shown": shown, "alarms-out": alarms}


def check_told(folder: Path, count: int) -> None:
    """What was told at once is no worse than it was promised."""
    expected = said_at_once(count)
    promised = {each.output: each for each in promises(payments.build(folder=folder, told=folder).graph)}
    for name, right in expected.items():
        lines = map(json.loads, (folder / f"{name}.jsonl").read_text().splitlines())
        seen = [(worker, (epoch,), sorted(rows)) for worker, epoch, rows in lines]
        assert promised[name].alike == Alike.EPOCHS
        found, why = observed(seen, right, promised[name].alike)
        assert found >= promised[name].any == Grade.REPEATING, (name, why)


def check(folder: Path, count: int) -> None:
    """Every payment is booked once, in its epoch; the best epochs of shops are right; and what was told is as promised."""
    check_told(folder, count)
    booked = rows_in(folder / "booked")
    best: dict[str, int] = {}
    said = {epoch: {row["shop"]: row["most"] for row in rows} for epoch, rows in rows_in(folder / "best").items()}
    assert sorted(booked) == list(range(-(-count // PER_EPOCH)))
    for epoch, rows in booked.items():
        numbers = range(epoch * PER_EPOCH, min(count, (epoch + 1) * PER_EPOCH))
        paid = [payments.payment(number) for number in numbers]
        assert sorted(rows, key=lambda row: row["number"]) == list(map(payments.as_row, paid))
        takings: dict[str, int] = {}
        for _, _, shop, amount in paid:
            takings[shop] = takings.get(shop, 0) + amount
        for shop, amount in takings.items():
            best[shop] = max(amount, best.get(shop, 0))
        assert all(best[shop] == most for shop, most in said.get(epoch, {}).items())
    assert {shop: most for epoch in sorted(said) for shop, most in said[epoch].items()} == best
    visits = {payments.payment(number)[1:3] for number in range(count)}
    visitors = rows_in(folder / "visitors")
    last = {row["shop"]: row["visitors"] for epoch in sorted(visitors) for row in visitors[epoch]}
    assert last == {shop: len([to for _, to in visits if to == shop]) for shop in last.keys() | {s for _, s in visits}}


def test_each_region_gets_what_its_policy_says(tmp_path: Path) -> None:
    layout = lay_out(compile_plan(payments.build(folder=tmp_path).graph, 2))
    of = {info.name: info for info in layout.processors}
    names = ("payments", "news", "takings", "best", "alarms", "visits", "visitors")
    others = {policy.__name__ for policy in POLICIES} - {"Amnesia", "PassiveStandby"}
    assert {of[name].policy for name in names} == others, "payments are never given up, and need no mates"
    assert layout.groups[of["booked"].group].independent
    assert layout.groups[of["balances"].group].eager


@pytest.mark.check
def test_killed_processes_do_not_show_in_what_was_booked(tmp_path: Path) -> None:
    count, restored, booked = 4_000, 0, tmp_path / "booked"

    def hear(kind: str, at: float, data: dict[str, Any]) -> None:
        nonlocal restored
        restored += kind == "restored"

    arguments = {"payments": count, "per_second": 1_500, "per_epoch": PER_EPOCH, "folder": str(tmp_path)}
    arguments["told"] = str(tmp_path)
    job = Job(Program(path=str(EXAMPLES / "payments.py"), args=arguments), 2, tmp_path / "store", on_event=hear)

    def wait(more: int, until: int) -> None:
        files, deadline = len(list(booked.glob("epoch-*"))) + more, time.monotonic() + 60
        while len(list(booked.glob("epoch-*"))) < files or restored < until:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def disturb() -> None:
        for number, victim in enumerate(("worker 0", "monitor", "worker 1", "worker 0"), 1):
            wait(more=5, until=number - (number > 2))
            pid = monitor_pid(job) if victim == "monitor" else job.pids[int(victim[-1])]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)

    run_beside(job.run, disturb)
    assert restored >= 3
    check(tmp_path, count)


@pytest.mark.soak
@pytest.mark.parametrize("others", [0, 4], ids=["quiet", "loaded"])
def test_hundreds_of_kills_do_not_show_in_what_was_booked(
    tmp_path: Path, others: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of them are aimed at a recovery from the one before; the tally says where they fell."""
    kills, random, phases = 150, Random(others), Counter[str]()
    with busy(others):
        while phases.total() < kills:
            folder = tmp_path / str(phases.total())
            folder.mkdir()
            before = phases.total()
            run_killed(folder, 15.0, random, phases)
            assert phases.total() > before
            with capsys.disabled():
                print(
                    f"{phases.total()} kills, {in_recovery(phases)} of them in a recovery: {dict(phases)}", flush=True
                )
    assert in_recovery(phases) > kills / 4


def run_killed(folder: Path, seconds: float, random: Random, phases: Counter[str]) -> None:
    """A job of so much input whose processes are killed, and what came of it. `phases`: where the kills fell."""
    count, phase, events, killed = int(seconds * 1_000), Phase(), list[str](), 0
    arguments = {"payments": count, "per_second": 1_000, "per_epoch": PER_EPOCH, "folder": str(folder)}
    arguments["told"] = str(folder)

    def hear(kind: str, at: float, data: dict[str, Any]) -> None:
        events.append(kind)
        phase.hear(kind)

    job = Job(Program(path=str(EXAMPLES / "payments.py"), args=arguments), 2, folder / "store", on_event=hear)

    def disturb() -> None:
        nonlocal killed
        while "finished" not in events and "failed" not in events:
            rounds, deadline = events.count("round"), time.monotonic() + 5
            if killed % 2:  # in the midst of the recovery from the last one
                while events.count("round") == rounds and "finished" not in events and time.monotonic() < deadline:
                    time.sleep(0.005)
                time.sleep(random.random() * 0.3)
            else:
                low = events.count("watermarks")
                while events.count("watermarks") < low + 4 and "finished" not in events:
                    time.sleep(0.01)
                time.sleep(random.expovariate(5.0))
            if "finished" in events:
                return
            monitor = random.random() < 0.1
            pid = monitor_pid(job) if monitor else random.choice(list(job.pids))
            now = phase.now
            if pid is not None and kill(pid):
                killed += 1
                phases[now] += 1
                if monitor:
                    phase.name = "assembling"

    run_beside(job.run, disturb)
    check(folder, count)


def test_simulated_failures_do_not_show_either(tmp_path: Path) -> None:
    def build() -> Dataflow:
        return payments.build(60, 1e9, 10, tmp_path)

    failures = 0
    for seed in range(4):
        calm = World(build, 1 + seed % 3, seed, kinds=())
        calm.run()
        stormy = World(build, 1 + seed % 3, seed, kinds=("kill", "monitor", "job"))
        stormy.run()
        stormy.outside.compare(calm.outside.result())
        failures += len(stormy.injector.happened)
    assert failures > 5
