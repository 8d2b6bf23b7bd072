"""The numbers of attempts at an epoch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from libraries.spark.dataflow.runner import claim_attempt
from libraries.spark.files.parquet import sweep_inputs
from libraries.spark.files.sweeping import Sweep
from timely.time import INF


def test_each_number_is_given_once_whoever_asks_and_they_go_with_their_epoch(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: claim_attempt(tmp_path, 3, durable=True), range(40)))
    assert sorted(numbers) == list(range(40))
    assert [claim_attempt(tmp_path, epoch, durable=False) for epoch in (4, 4, INF, 3)] == [0, 1, 0, 40]
    sweep_inputs(tmp_path, [Sweep(3, 0, None)])
    assert [claim_attempt(tmp_path, epoch, durable=False) for epoch in (3, 4, INF)] == [0, 2, 1]
