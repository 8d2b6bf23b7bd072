"""The cost of a supposed decision on one worker: asked of a job that goes on, for "what if this worker died now?"."""

from __future__ import annotations

from collections import Counter

from recovery.layout import Layout
from recovery.protocol import Redone, Resent, Suppose, Supposed
from recovery.recorder import WorkerRecorder
from recovery.rollback.orders import wanted
from timely.data.batch import nbytes


def suppose(
    question: Suppose, layout: Layout, recorder: WorkerRecorder, index: int, generation: int, seconds: float
) -> Supposed:
    """The answer of worker `index` to `question`.

    `seconds`: what this worker has worked so far. A record is taken to cost what it costs on average here.
    """
    failed = question.failed[index]
    messages: Counter[tuple[int, int]] = Counter()
    size: Counter[tuple[int, int]] = Counter()
    numbers = {edge.edge: number for number, edge in enumerate(layout.edges)}
    for entry in wanted(layout, recorder, index, question.bounds, lambda processor: processor not in failed):
        key = numbers[entry.edge], entry.receiver
        messages[key] += 1
        size[key] += len(entry.payload) if entry.batch is None else nbytes(entry.batch)
    resent = tuple(Resent(*key, messages[key], size[key]) for key in sorted(messages))
    each = seconds / recorder.records if recorder.records else 0.0
    redone = []
    for processor, bound in enumerate(question.bounds[index]):
        if bound is None:
            continue
        handled = {at: count for at, count in recorder.handled[processor].items() if at >= bound[: len(at)]}
        if handled:
            records, epochs = sum(handled.values()), len({at[0] for at in handled})
            redone.append(Redone(processor, records, epochs, records * each))
    return Supposed(index, generation, question.question, resent, tuple(redone))
