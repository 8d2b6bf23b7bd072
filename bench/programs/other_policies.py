"""Predicted and measured cost of other policies, on the workload of `policies` with two workers.

Of each pair two jobs run side by side, so that whatever else the machine does meets both: one under the first choice, which is
asked what the second would change (`falkirk whatif --policy`), and one under the second, of which is measured what it costs:
bytes to the store and processor time of all workers, and the records that the death of a worker would have handled again, as
solved by its monitor. A machine that is short of time reads less in one job than in the other: so all is for a record that is
read, or a second of reading. A job that ends, or of which too little is known after `MOST_SECONDS`, is said, and left out.

    python bench/programs/other_policies.py SECONDS FOLDER [PAIR...]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from policies import parse, reading

from falkirk import Dataflow, FileSink, Rate
from falkirk.other_policies_view import compared
from monitor.explain.measured import Window, of_all
from recovery.layout import Layout
from recovery.policy.written import policy_of_text
from recovery.store.address import StoreAddress
from runtime.folders.store_folder import StoreFolder
from runtime.page.address import UNIX
from runtime.page.caller import Caller
from timely.errors import FalkirkError

WORKERS, PER_SECOND, PER_EPOCH = 2, 2_000, 50
PLAIN = {"front": "Lazy(every=1.0)", "totals": "Lazy(every=1.0)"}
CHOICES: dict[str, dict[str, str]] = {
    "Lazy": PLAIN,
    "front Batch(log_outputs=True)": {**PLAIN, "front": "Batch(log_outputs=True)"},
    "front Batch": {**PLAIN, "front": "Batch()"},
    "totals LogHistory": {**PLAIN, "totals": "LogHistory(every=1.0)"},
    "totals Snapshot": {**PLAIN, "totals": "Snapshot(every=1.0)"},
    "totals Eager": {**PLAIN, "totals": "Eager()"},
    "all Lazy(every=4.0)": dict.fromkeys(PLAIN, "Lazy(every=4.0)"),
}
WARM_SECONDS = 32.0
"""Warm-up left out, in seconds: longer than the period of averaged rates."""
MOST_SECONDS = 150.0
PAIRS = (
    ("Lazy", "front Batch(log_outputs=True)"),
    ("front Batch", "Lazy"),
    ("Lazy", "totals LogHistory"),
    ("Lazy", "totals Snapshot"),
    ("Lazy", "totals Eager"),
    ("Lazy", "all Lazy(every=4.0)"),
    ("all Lazy(every=4.0)", "Lazy"),
    ("totals LogHistory", "Lazy"),
)


def build(folder: str, front: str, totals: str) -> Dataflow:
    """The program under two policies."""
    flow = Dataflow("policies")
    with flow.region("front", policy=policy_of_text(front)):
        lines = flow.source("readings", Rate(reading, PER_SECOND, 10**9, epoch_every=PER_EPOCH))
        pairs = lines.map(parse, name="parse")
    with flow.region("totals", policy=policy_of_text(totals)):
        pairs.keyed().sum(name="totals").records().to(FileSink(f"{folder}/out"), name="out")
    return flow


class Running:
    """Job under a choice; costs so far, each for a record or a second of reading, by name."""

    def __init__(self, choice: str, folder: Path, asked: str | None) -> None:
        command = [sys.executable, "-m", "falkirk", "run", f"{__file__}:build", "-w", str(WORKERS)]
        command += ["--store", str(folder / "store")]
        for name, value in {"folder": str(folder), **CHOICES[choice]}.items():
            command += ["--arg", f"{name}={value}"]
        folder.mkdir(parents=True)
        self.choice, self.asked = choice, asked
        self._files = StoreFolder(StoreAddress.of(folder / "store"))
        self._job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._window: Window | None = None
        self._layout: Layout | None = None
        self.since: float | None = None
        """Begin of the measured time."""
        self.seen: dict[str, list[float]] = defaultdict(list)
        self.guessed: dict[str, list[float]] = defaultdict(list)

    def look(self) -> None:
        """Take a sample of the job; raises RuntimeError if it has ended."""
        if self._job.poll() is not None:
            raise RuntimeError(f"{self.choice}: the job ended with exit code {self._job.returncode}")
        try:
            address = self._files.page.read_text()
            with Caller(address.removeprefix(UNIX), 60.0) as caller:
                if self._window is None:
                    self._layout, self._window = caller.layout, Window(caller.layout)
                observation = caller.observe()
        except (FileNotFoundError, ConnectionRefusedError):
            return  # it has not begun
        assert self._layout is not None
        self._window.take(observation.samples)
        rates = self._window.rates()
        if len(rates) < WORKERS or not all(rate.epochs for rate in rates.values()):
            return
        now = time.monotonic()
        self.since = now if self.since is None else self.since
        if now < self.since + WARM_SECONDS:
            return  # the start is still in the rates, which are averages
        parse_at = next(p for p, info in enumerate(self._layout.processors) if info.name == "parse")
        read = sum(float(rate.taken[parse_at]) for rate in rates.values())
        if not read:
            return
        known = [each.records for each in observation.exposure if each.who >= 0 and each.records is not None]
        written, cpu = of_all(rates.values())
        for name, values in (("records", [max(known)] if known else []), ("bytes", [written]), ("cpu", [cpu])):
            self.seen[name] += [value / read for value in values]
        if self.asked is None:
            return
        answer = compared(address, [f"{region}={policy}" for region, policy in CHOICES[self.asked].items()])
        if answer["bytes"] is not None:
            after = max(each["after"]["typical"]["records"] for each in answer["workers"])
            for name, value in (
                ("records", after),
                ("bytes", answer["bytes"]["after"]),
                ("cpu", answer["cpu"]["after"]),
            ):
                self.guessed[name].append(value / read)

    def is_known(self, seconds: float) -> bool:
        """True if so much of its costs was seen."""
        return self.since is not None and time.monotonic() > self.since + WARM_SECONDS + seconds and bool(self.seen)

    def stop(self) -> None:
        """Stop the job, or kill it if it does not stop."""
        if self._job.poll() is None:
            self._files.stop_request.touch()
            try:
                self._job.wait(60)
            except subprocess.TimeoutExpired:
                print(json.dumps({"choice": self.choice, "problem": "the job did not stop in 60 s"}), flush=True)
                self._job.kill()
                self._job.wait()


def compare_pair(before: str, after: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Predicted and measured costs of a pair."""
    jobs = [Running(before, folder / "before", after), Running(after, folder / "after", None)]
    until = time.monotonic() + MOST_SECONDS + seconds
    found: dict[str, Any] = {"from": before, "to": after}
    try:
        while not all(job.is_known(seconds) for job in jobs):
            if time.monotonic() > until:
                return {**found, "problem": "too little was known in time"}
            time.sleep(0.5)
            for job in jobs:
                job.look()
    except (RuntimeError, FalkirkError, OSError) as problem:
        return {**found, "problem": str(problem)}
    finally:
        for job in jobs:
            job.stop()
    predicted, measured, now = (
        {name: mean(values) for name, values in of.items()} for of in (jobs[0].guessed, jobs[1].seen, jobs[0].seen)
    )
    errors = {name: predicted[name] / measured[name] - 1 for name in measured if measured[name] and name in predicted}
    return {**found, "error": errors, "predicted": predicted, "measured": measured, "before": now}


def main(seconds: float, folder: Path, chosen: list[str]) -> None:
    """Compare the chosen pairs, by number."""
    for number, (before, after) in enumerate(PAIRS):
        if not chosen or str(number) in chosen:
            print(json.dumps(compare_pair(before, after, folder / str(number), seconds)), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
