"""Detection of in-place changes of input by user functions.

A record is one object for all who read a stream in its process, for the source that it came from, and for the messages that are
kept for a failure. Other branches then see a change or do not, by order and by worker.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import polars as pl

from falkirk.simulate.judging import exactly
from timely.data.batch import Batch
from timely.data.codec import encode
from timely.dataflow.graph import Graph, Node
from timely.errors import CodecError, shown
from timely.operators.base import Context, Operator
from timely.operators.channels import Channel, Exchange
from timely.operators.stateless import Stage, operator_error
from timely.time import Time


class ChangedInPlace(Exception):
    """Raised for an in-place change of an input batch by an operator."""


def watched(graph: Graph) -> Graph:
    """The graph with operators checked for modifying their input.

    They are compared after each batch and notification.
    """
    graph = copy(graph)
    graph.nodes = [_watched(node) for node in graph.nodes]
    graph.edges = [replace(edge, channel=_channel(edge.channel)) for edge in graph.edges]
    return graph


def _channel(channel: Channel) -> Channel:
    """Channel with a check of its `combine` function for modifying its input."""
    if isinstance(channel, Exchange) and channel.combine is not None:
        return replace(channel, combine=_held(channel.combine))
    return channel


def _watched(node: Node) -> Node:
    if node.stages:
        return replace(node, stages=tuple(_stage(stage) for stage in node.stages))
    if node.factory is None:
        return node
    factory = node.factory

    def make() -> Operator:
        operator = factory()
        given, notified = operator.on_batch, operator.on_notify
        held: dict[Time, list[tuple[Any, Batch]]] = {}

        def compare(time: Time, batches: list[tuple[Any, Batch]]) -> None:
            try:
                for before, batch in batches:
                    _compare(before, batch)
            except ChangedInPlace as error:
                raise operator_error(f"{node.kind} {node.name!r}", node.site, time, error, None, None) from error

        def on_batch(ctx: Context, port: int, time: Time, batch: Batch) -> None:
            held.setdefault(time, []).append((_content(batch), batch))
            given(ctx, port, time, batch)
            compare(time, held[time][-1:])

        def on_notify(ctx: Context, time: Time) -> None:
            notified(ctx, time)
            compare(time, held.pop(time, []))  # a function may see records only when their time is complete

        operator.on_batch = on_batch  # type: ignore[method-assign]
        if node.notifies:
            operator.on_notify = on_notify  # type: ignore[method-assign]
        return operator

    return replace(node, factory=make)


def _stage(stage: Stage) -> Stage:
    return stage if stage.plan is not None else replace(stage, apply=_held(stage.apply))


def _held(apply: Callable[[Batch], Batch]) -> Callable[[Batch], Batch]:
    def held(batch: Batch) -> Batch:
        before = _content(batch)
        made = apply(batch)
        _compare(before, batch)
        return made

    return held


def _content(batch: Batch) -> Any:
    """Copy of a batch for later comparison; of records, each as bytes or text."""
    if isinstance(batch, pl.DataFrame):
        return batch.clone()
    return [(_one(record), shown(record, 120)) for record in batch] if isinstance(batch, list) else None


def _one(record: object) -> bytes | str:
    try:
        return encode(record)
    except CodecError:
        return exactly(record)


def _compare(before: Any, batch: Batch) -> None:
    """Raise ChangedInPlace unless the batch is as it was."""
    if isinstance(batch, pl.DataFrame):
        if before.schema != batch.schema or not before.equals(batch):
            raise ChangedInPlace(
                "it changes the frame that it is given, which other branches read as well: return another frame"
            )
    elif isinstance(batch, list):
        for (content, text), record in zip(before, batch):
            if content != _one(record):
                raise ChangedInPlace(
                    f"it changes the record that it is given, {text}, to {shown(record, 120)}: other branches, the source and "
                    "what is kept for a failure hold the same record. Return a new one, as {**record, ...}, or copy it first"
                )
        if len(before) != len(batch):
            raise ChangedInPlace(
                f"it changes the list that it is given, of {len(before)} records, to one of {len(batch)}: return another list"
            )
