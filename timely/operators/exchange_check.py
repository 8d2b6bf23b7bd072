"""Check on one worker of exchanged batches: they must be routable and encodable.

A program must not work on one worker and fail on two: so the first batch of every exchange input is routed and encoded,
a few records of it, and thrown away. From then on the operator is called directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from timely.data.batch import Batch
from timely.data.codec import encode_batch
from timely.data.span import Span
from timely.operators.base import Context, Operator
from timely.operators.channels import Channel, Exchange
from timely.operators.stateless import Stage, exchange_error
from timely.time import Time

WRAPPED = ("on_batch", "on_span")
"""Operator methods wrapped here, as attributes of the instance.

They are no state of the user's.
"""


def check_carried(what: str, site: object, channel: Channel, batch: Batch) -> None:
    """Route and encode the first records of `batch`, as an exchange would.

    Raises what the exchange in front of `what` would raise.
    """
    if channel.surely_carries(batch):
        return
    parts = [channel.sample(batch)]
    try:
        if isinstance(channel, Exchange):
            parts = [part for part in _split(channel, parts[0]) if part is not None]
        for part in parts:
            if len(part):
                encode_batch(part)
    except Exception as error:
        raise exchange_error(what, site, error, batch) from error


def _split(channel: Exchange, sample: Batch) -> list[Batch | None]:
    """Parts of some records for two workers.

    Records that cannot be combined go as they are: the operator's own error is better.
    """
    if channel.combine is not None:
        try:
            return channel.split(sample, 2)
        except Exception:
            channel = replace(channel, combine=None)
    return channel.split(sample, 2)


def checking_factory(
    factory: Callable[[], Operator], what: str, site: object, channels: Mapping[int, Channel]
) -> Callable[[], Operator]:
    """Wrap `factory`: its operators check the first batch on each port of `channels`."""

    def make() -> Operator:
        operator = factory()
        direct, direct_span = operator.on_batch, operator.on_span
        unchecked = dict(channels)

        def check(port: int, batch: Batch) -> None:
            channel = unchecked.pop(port, None)
            if channel is not None:
                check_carried(what, site, channel, batch)
            if not unchecked:
                del operator.on_batch, operator.on_span  # the methods of its class are there again

        def on_batch(ctx: Context, port: int, time: Time, batch: Batch) -> None:
            check(port, batch)
            direct(ctx, port, time, batch)

        def on_span(ctx: Context, port: int, span: Span) -> None:
            check(port, next(span.parts())[1])
            direct_span(ctx, port, span)

        operator.on_batch, operator.on_span = on_batch, on_span  # type: ignore[method-assign]
        return operator

    return make


def checking_stage(stage: Stage, channel: Channel) -> Stage:
    """Stage to put in front of `stage`, as a check of its first batch."""
    checked = False

    def apply(batch: Batch) -> Batch:
        nonlocal checked
        if not checked:
            checked = True
            check_carried(f"{stage.kind} {stage.name!r}", stage.site, channel, batch)
        return batch

    return Stage(stage.name, stage.kind, stage.site, apply, repeats_over="record")
