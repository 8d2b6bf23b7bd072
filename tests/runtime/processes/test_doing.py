"""The current work of a worker, in words: the stage of a fused chain in which it is."""

from __future__ import annotations

from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.session import Session
from runtime.session.stacks import doing
from timely.io import Iterable


def test_the_stage_of_a_fused_chain_is_named() -> None:
    said: list[tuple[str, str]] = []

    def nap(n: int) -> int:
        said.append(doing(session.worker.acting))
        return n

    flow = Dataflow("naps")
    numbers = flow.source("in", Iterable([1]))
    numbers.map(lambda n: n, name="before").map(nap, name="nap").map(lambda n: n, name="behind").capture("out")
    with Session(flow) as session:
        session.run()
    [(text, name)] = said
    assert text.startswith("map 'nap' (")
    assert "now in line" in text
    assert name == "nap"
    assert doing(None) == ("", "")
