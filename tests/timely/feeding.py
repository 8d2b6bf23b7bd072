"""Feeds a cluster in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime.session.cluster import Cluster


def feed_in_turn(cluster: Cluster, epochs: Sequence[Sequence[Any]]) -> None:
    """Deal the records of each epoch to the workers' input "in" in turn, with a step after each epoch; run to the end."""
    feed_batches_in_turn(cluster, [[[record] for record in records] for records in epochs])


def feed_batches_in_turn(cluster: Cluster, epochs: Sequence[Sequence[Any]]) -> None:
    """The same for whole batches: `epochs` are the batches of each."""
    for epoch, batches in enumerate(epochs):
        for i, batch in enumerate(batches):
            cluster.sessions[i % len(cluster.sessions)].input("in").send(batch)
        for session in cluster.sessions:
            session.input("in").advance_to(epoch + 1)
        cluster.step()
    for session in cluster.sessions:
        session.input("in").close()
    cluster.run()
