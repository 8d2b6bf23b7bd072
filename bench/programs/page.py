"""The cost of an open page to the monitor: an update for it, several times a second; and drawing the dataflow, once.

`--size` operators, in six lanes that exchange again and again, a quarter of them with state. In every update all frontiers and
counters of all workers have changed. The figure is the processor time from the workers' reports to the bytes for one page.
"""

from __future__ import annotations

import time

import msgspec
import numpy as np
from common import arguments, percentile, report

import falkirk
from monitor.web.fold import fold, group_tree
from monitor.web.graph_page import graph_page
from monitor.web.view import Observation, View, WorkerView, changes
from recovery.layout import Layout, lay_out
from recovery.metadata import at_epoch
from recovery.place import Place
from recovery.protocol import Observed, encode_message
from runtime.recovery.observer import ROWS
from timely.dataflow.plan import compile_plan

LANES = 6
UPDATES = 60


def layout_of(operators: int, workers: int) -> Layout:
    """A dataflow with about so many operators."""
    flow = falkirk.Dataflow("wide")
    lanes = [flow.source(f"source {lane}", falkirk.Iterable([])) for lane in range(LANES)]
    for step in range(operators // LANES // 2):
        lanes = [lane.key_by(hash).count(name=f"count {at} {step}").records() for at, lane in enumerate(lanes)]
        lanes = [lane.exchange(by=hash).map(str) for lane in lanes]
    return lay_out(compile_plan(flow.graph, workers))


def reports(layout: Layout, updates: int) -> list[list[bytes]]:
    """The messages of each worker, update by update."""
    chance = np.random.default_rng(7)
    table = np.zeros((len(ROWS), len(layout.processors)), dtype=np.int64)
    said = []
    for epoch in range(1, updates + 1):
        of_all = []
        for worker in range(layout.workers):
            table[:2] = [[epoch], [0]]
            table[ROWS.index("taken") :] += chance.integers(0, 1000, (3, len(layout.processors)))
            of_all.append(encode_message(Observed(Place(worker), 1, table.tobytes(), epoch * 1000, 0, epoch, (0.01,))))
        said.append(of_all)
    return said


def main() -> None:
    args = arguments()
    for operators, workers in ((args.size // 10, 4), (args.size, 64)):
        layout = layout_of(operators, workers)
        begin = time.process_time()
        folding = fold(layout, group_tree(layout))
        picture = graph_page(layout, folding)
        size = f"{len(layout.processors)}x{workers}"
        report((time.process_time() - begin) * 1e3, system=f"draw_{size}", unit="ms", nodes=len(picture["nodes"]))
        view = View(layout)
        rows = None
        views = tuple(WorkerView("alive", worker, 0) for worker in range(workers))
        times, sent = [], 0
        for epoch, of_all in enumerate(reports(layout, UPDATES), start=1):
            safe = tuple(at_epoch(epoch, info.depth) for info in layout.processors)
            low = tuple((*safe,) for _ in range(workers))
            begin = time.process_time()
            told = {said.place.worker: (epoch / 4, said) for said in (decode(data) for data in of_all)}
            view.update(Observation(epoch / 4, "running", 1, low, ((epoch,),) * workers, views, told))
            after = view.rows(folding)
            message = {"rows": changes(rows, after), "totals": view.totals(), "workers": view.workers()}
            sent += len(msgspec.json.encode(message))
            times.append((time.process_time() - begin) * 1e3)
            rows = after
        times.sort()
        report(
            percentile(times, 0.5),
            system=f"update_{size}",
            unit="ms",
            p99=percentile(times, 0.99),
            bytes=sent // UPDATES,
        )


decode = msgspec.msgpack.Decoder(Observed).decode

if __name__ == "__main__":
    main()
