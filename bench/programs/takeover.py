"""Silence of a job after `kill -9` of a worker, without and with mates.

Parts are `lazy`, without, `lazy_mates`, and `passive_standby`: saved every 50 ms in the memory of mates, every ten seconds
durably. Each of two workers keeps running sums for its half of `--size` keys, saved every second by the others, and gets epochs
of 1,000 records at a fixed rate once all are loaded. The time counts from the kill until the first
output, on any worker, of an epoch due after it. With mates, a worker dies when both mates have their state. The second figure
is processor seconds of all processes of the job for each second, between the loading and the first kill. The third is the part
of the first until state is restored and work begins; the rest is work, on a slow machine that of a backlog.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import steady
from common import arguments, report

import falkirk
from falkirk import Lazy, PassiveStandby

SETTLE_SECONDS = 6
"""Steady seconds with processor time counted."""
LOOK_SECONDS = 1.0
"""Seconds from a kill to the first look at outputs.

The process that looks also leads the job, and has better things to do until then.
"""
KILLS = 4


def _is_past(folder: Path, killed: float) -> bool:
    """True if there is an output due after a kill."""
    due = steady.first_due(folder, killed)
    return any(epoch >= due for _, epoch, _ in steady.outputs(folder))


def _is_rollback(event: dict[str, Any]) -> bool:
    return event["kind"] == "restored" and not event["start"]


def _spent() -> float:
    """Processor seconds of all processes started from here."""
    parent: dict[int, int] = {}
    spent: dict[int, float] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = file.read_text().rpartition(")")[2].split()
            pid = int(file.parent.name)
            parent[pid], spent[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parent and ours(parent[pid]))

    return sum(seconds for pid, seconds in spent.items() if pid != os.getpid() and ours(pid))


def _wait(ready: Callable[[], bool]) -> None:
    while not ready():
        time.sleep(0.2)


def main() -> None:
    args = arguments()
    mates = int(args.part != "lazy")
    policy = PassiveStandby(every="50ms", durable="10s") if args.part == "passive_standby" else Lazy(every="1s")
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as store:
        folder = Path(name)
        log = folder / "events"
        killed: list[float] = []
        cpu: list[float] = []

        def ready(times: int) -> bool:
            """True if mates have caught up so often."""
            return not mates or (log.exists() and log.read_text().count('"mate"') >= times)

        def follow() -> None:
            chance = random.Random(7)
            _wait(lambda: steady.newest(folder, args.workers) >= steady.LOADING - 1)
            steady.begin(folder)
            _wait(
                lambda: ready(args.workers) and steady.newest(folder, args.workers) >= steady.LOADING + 2 * steady.RATE
            )
            began, spent = time.perf_counter(), _spent()
            time.sleep(SETTLE_SECONDS)
            cpu.append((_spent() - spent) / (time.perf_counter() - began))
            for number in range(KILLS):
                _wait(partial(ready, args.workers + number))
                time.sleep(2 + chance.random())  # a cut, and anywhere between two
                killed.append(steady.kill(folder, number % args.workers))
                time.sleep(LOOK_SECONDS)
                _wait(partial(_is_past, folder, killed[-1]))
            (folder / steady.ENDED).touch()

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        flow = steady.build(folder, args.size, policy=policy)
        falkirk.run(flow, workers=args.workers, store=store, mates=mates, events=log)
        thread.join()
        written = steady.outputs(folder)
        rounds = [
            each["seconds"] * 1000 for each in map(json.loads, log.read_text().splitlines()) if _is_rollback(each)
        ]
        silent = [(steady.first_sign(folder, written, at) - at) * 1000 for at in killed]
    report(statistics.median(silent), all=[round(each) for each in silent])
    report(cpu[0], system=f"{args.part}_cpu", unit="CPU s/s")
    report(statistics.median(rounds), system=f"{args.part}_round", all=[round(each) for each in rounds])


if __name__ == "__main__":
    main()
