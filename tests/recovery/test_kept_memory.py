"""The memory of kept messages: used again when they are forgotten, and as large as what is kept at the same time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import falkirk
from falkirk import Lazy, agg
from recovery.layout import lay_out
from recovery.memory.recorder import WorkerRecorder
from timely.data.codec import decode_batch
from timely.dataflow.plan import compile_plan
from timely.worker.worker import Worker

ROWS = 100_000
EPOCHS = 60


def test_columns_that_are_kept_for_another_worker_take_the_memory_of_those_that_were_forgotten() -> None:
    flow = falkirk.Dataflow()
    with flow.region("all", policy=Lazy(every="1s")):
        rows = flow.columns("rows", falkirk.Batches([]))
        rows.group_by("key").agg(over="time", n=agg.count()).capture("out")
    plan = compile_plan(flow.graph, 2)
    recorder = WorkerRecorder(lay_out(plan), 0)
    worker = Worker(plan, 0, recorder)
    (source,), (edge,) = plan.graph.of_kind("source"), recorder.keeping
    sent: dict[int, bytes] = {}
    for epoch in range(EPOCHS):
        worker.feed(source.index, (epoch,), pa.table({"key": np.arange(epoch, epoch + ROWS)}))
        worker.advance(source.index, (epoch + 1,))
        worker.run()
        (message,) = worker.take_frames(quiet=True)[1].messages
        sent[epoch] = b"".join(message.payload)
        if epoch % 10 == 9:
            recorder.shipments.forget((edge, 1), (epoch - 4,))
            sent = {each: payload for each, payload in sent.items() if each >= epoch - 4}
        kept = {
            time[0]: (header, payload) for _, time, _, header, payload in recorder.shipments.wanted((edge, 1), (0,))
        }
        assert kept.keys() == sent.keys()
        for each, (header, payload) in kept.items():
            assert bytes(payload) == sent[each]
            assert header is not None
            assert len(decode_batch(header, payload)) > ROWS // 3
    at_once = 15 * max(map(len, sent.values()))
    assert at_once < worker._outbox.pooled < 2 * at_once
