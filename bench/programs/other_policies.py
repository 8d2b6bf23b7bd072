"""Predicted and measured cost of other policies, on the workload of `policies` with two workers.

A job runs under each choice for some seconds. While it runs it is asked what each other choice would change
(`falkirk whatif --policy`), and what it costs itself is measured: bytes to the store and processor time a second, of all
workers, and the records that the death of a worker would have handled again, at each second, as solved by its monitor. For
each pair a line: the prediction of the one held against the measurement of the other.

    python bench/programs/other_policies.py SECONDS FOLDER
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import mean

from policies import parse, reading

from falkirk import Dataflow, FileSink, Rate
from falkirk.other_policies_view import compared
from monitor.explain.measured import Window, of_all
from recovery.policy.written import policy_of_text
from recovery.store.address import StoreAddress
from runtime.folders.store_folder import StoreFolder
from runtime.page.address import UNIX
from runtime.page.caller import Caller

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
_WARM_SECONDS = 32.0


def build(folder: str, front: str, totals: str) -> Dataflow:
    """The program under two policies."""
    flow = Dataflow("policies")
    with flow.region("front", policy=policy_of_text(front)):
        lines = flow.source("readings", Rate(reading, PER_SECOND, 10**9, epoch_every=PER_EPOCH))
        pairs = lines.map(parse, name="parse")
    with flow.region("totals", policy=policy_of_text(totals)):
        pairs.keyed().sum(name="totals").records().to(FileSink(f"{folder}/out"), name="out")
    return flow


def measure(choice: str, folder: Path, seconds: float) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Measured cost of a choice, and predicted cost of its pairs."""
    given = {"folder": str(folder), **CHOICES[choice]}
    command = [
        sys.executable,
        "-m",
        "falkirk",
        "run",
        f"{__file__}:build",
        "-w",
        str(WORKERS),
        "--store",
        str(folder / "store"),
    ]
    for name, value in given.items():
        command += ["--arg", f"{name}={value}"]
    folder.mkdir(parents=True)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        files = StoreFolder(StoreAddress.of(folder / "store"))
        try:
            return _watch(files, [other for one, other in PAIRS if one == choice], seconds)
        finally:
            files.stop_request.touch()
            job.wait()


def _watch(
    files: StoreFolder, asked: list[str], seconds: float
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    seen: dict[str, list[float]] = defaultdict(list)
    guessed: dict[str, dict[str, list[float]]] = {other: defaultdict(list) for other in asked}
    window: Window | None = None
    begin = float("inf")
    while time.monotonic() < begin + seconds:
        time.sleep(0.5)
        try:
            address = files.page.read_text()
            with Caller(address.removeprefix(UNIX), 60.0) as caller:
                window = window or Window(caller.layout)
                observation = caller.observe()
        except (FileNotFoundError, ConnectionRefusedError):
            continue  # it has not begun
        window.take(observation.samples)
        rates = window.rates()
        if len(rates) < WORKERS or not all(rate.epochs for rate in rates.values()):
            continue
        begin = min(begin, time.monotonic() + WARM_SECONDS)
        if time.monotonic() < begin:
            continue  # the start is still in the rates, which are averages
        known = [each.records for each in observation.exposure if each.who >= 0 and each.records is not None]
        seen["records"] += [max(known)] if known else []
        seen["bytes"] += [of_all(rates.values())[0]]
        seen["cpu"] += [of_all(rates.values())[1]]
        for other in asked:
            answer = compared(address, [f"{region}={policy}" for region, policy in CHOICES[other].items()])
            if answer["bytes"] is not None:
                guessed[other]["bytes"] += [answer["bytes"]["after"]]
                guessed[other]["cpu"] += [answer["cpu"]["after"]]
                guessed[other]["records"] += [max(each["after"]["typical"]["records"] for each in answer["workers"])]
    return (
        {name: mean(values) for name, values in seen.items()},
        {other: {name: mean(values) for name, values in of.items()} for other, of in guessed.items()},
    )


def main(seconds: float, folder: Path) -> None:
    """Measure all choices, and print each pair."""
    found = {}
    for number, choice in enumerate(CHOICES):
        found[choice] = measure(choice, folder / str(number), seconds)
        measured, predicted = found[choice]
        print(json.dumps({"choice": choice, "measured": measured, "predicts": predicted}), flush=True)
    for before, after in PAIRS:
        predicted, measured = found[before][1][after], found[after][0]
        errors = {name: predicted[name] / measured[name] - 1 for name in measured if measured[name]}
        print(json.dumps({"from": before, "to": after, "predicted": predicted, "measured": measured, "error": errors}))


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]))
