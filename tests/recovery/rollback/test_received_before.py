"""A living receiver takes each logged message once, also from a sender that has failed and sends its log again."""

from __future__ import annotations

from libraries.columns.verbs.dataflow import Dataflow
from recovery.layout import lay_out
from recovery.memory.recorder import WorkerRecorder
from recovery.policy import Batch
from timely.data.messages import Message
from timely.dataflow.plan import compile_plan
from timely.io import Iterable


def test_what_lies_before_a_restored_or_collected_bound_is_not_taken_again() -> None:
    flow = Dataflow("logged")
    with flow.region("front", policy=Batch(log_outputs=True)):
        numbers = flow.source("in", Iterable(range(9), epoch_every=1))
    numbers.exchange(by=lambda number: number).capture("out")
    layout = lay_out(compile_plan(flow.graph, 2))
    edge = next(edge for edge in layout.edges if edge.logged and edge.spread)
    recorder = WorkerRecorder(layout, 0)

    def taken(number: int, epoch: int) -> bool:
        return recorder.taken(1, Message(edge.edge, number, (epoch,), (epoch,), b"", [b""]))

    assert taken(1, 0)
    assert not taken(1, 0)
    recorder.restored(
        edge.target, (2,), ()
    )  # another process took over: its state holds what came before, not the numbers
    assert not taken(1, 0)
    assert not taken(2, 1)
    assert taken(3, 2)
    recorder.restored(edge.target, (1,), None)  # the same process, taken further back: what it forgot has to come again
    assert not taken(1, 0)
    assert taken(2, 1)
    assert taken(3, 2)
    recorder.collect(edge.target, (3,))  # it will never go below that, and forgets the numbers
    assert not taken(3, 2)
    assert taken(4, 3)
    assert not taken(4, 3)  # at that bound itself, numbers are all there is to tell
    recorder.collect(edge.target, (3,))
    assert not taken(4, 3)
    assert taken(5, 4)
