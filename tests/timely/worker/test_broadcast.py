"""What is broadcast is encoded once, however many workers hear it, and each of them decodes what was sent."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from timely.data.batch import Batch
from timely.data.codec import encode_batch
from timely.errors import CodecError
from timely.worker import outbox

batches = st.lists(
    st.one_of(
        st.lists(st.integers(), min_size=1, max_size=4),
        st.lists(st.integers(0, 9), min_size=1, max_size=4).map(lambda values: pl.DataFrame({"x": values})),
    ),
    min_size=1,
    max_size=4,
)


def records_of(batch: Batch) -> list[Any]:
    return batch if isinstance(batch, list) else pl.DataFrame(batch)["x"].to_list()


@given(batches, st.integers(2, 5))
def test_a_broadcast_is_encoded_once_for_all(sent: list[Batch], workers: int) -> None:
    flow = Dataflow()
    capture = flow.input("in").broadcast().capture("out")
    made: list[Batch] = []

    def counted(batch: Batch, pool: Any = None) -> tuple[bytes, list[Any]]:
        made.append(batch)
        return encode_batch(batch, pool)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "encode_batch", counted)
        cluster = Cluster(flow, workers, 0)
        for epoch, batch in enumerate(sent):
            cluster.sessions[epoch % workers].input("in").send(batch)
            for session in cluster.sessions:
                session.input("in").advance_to(epoch + 1)
        for session in cluster.sessions:
            session.input("in").close()
        cluster.run()
    wanted = sorted((epoch, records_of(batch)) for epoch, batch in enumerate(sent))
    assert len(made) == len(sent)
    for session in cluster.sessions:
        assert sorted((time[0], records_of(batch)) for time, batch in session.captured(capture)) == wanted


def test_an_exchange_encodes_what_each_worker_gets() -> None:
    flow = Dataflow()
    capture = flow.input("in").exchange(lambda x: x).capture("out")
    cluster = Cluster(flow, 3, 0)
    for session in cluster.sessions:
        session.input("in").send(list(range(30)))
        session.input("in").close()
    cluster.run()
    found = [sorted(x for _, batch in session.captured(capture) for x in batch) for session in cluster.sessions]
    assert sorted(x for mine in found for x in mine) == sorted([*range(30)] * 3)
    assert all(len(set(mine)) * 3 == len(mine) for mine in found)


def test_what_cannot_be_encoded_names_the_line_of_the_broadcast() -> None:
    flow = Dataflow()
    flow.input("in").map(lambda x: object()).broadcast(name="far").capture("out")
    cluster = Cluster(flow, 3, 0)
    cluster.sessions[0].input("in").send([1])
    with pytest.raises(CodecError, match=r"far.*test_broadcast.py"):
        cluster.run()
