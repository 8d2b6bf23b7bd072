"""The physical dataflow of a layout: who keeps what for whom, who repeats, and what is behind those who send anew."""

from __future__ import annotations

import msgspec

from monitor.coordination.topology import Topology
from recovery.layout import Layout, ProcessorInfo
from tests.recovery.layouts import layout


def changed(of: Layout, p: int, **traits: object) -> Layout:
    """The layout with other traits of one processor."""
    infos: list[ProcessorInfo] = list(of.processors)
    infos[p] = msgspec.structs.replace(infos[p], **traits)
    return msgspec.structs.replace(of, processors=tuple(infos))


def test_what_is_kept_is_numbered_among_the_kept_edges_of_its_sender() -> None:
    of = Topology(layout("a source, b any, c chain", "a>b, a=>c", 2, kept=True))
    for worker in range(2):
        kept = of.kept[of.flat(0, worker)]
        assert [(number, receiver) for _, number, receiver in kept] == [(0, 0), (0, 1)]
        assert all(of.edges[index].source == of.flat(0, worker) for index, _, _ in kept)


def test_only_what_is_kept_for_another_worker_is_not_sent_twice() -> None:
    of = Topology(layout("a source, b any, c chain", "a=>b, b>c", 2, kept=True))
    workers = [(edge.source % 2, edge.target % 2) for edge in of.edges if edge.suppressed]
    assert workers == [(0, 1), (1, 0)]
    assert not any(edge.suppressed for edge in Topology(layout("a source, b any", "a=>b", 2)).edges)


def test_only_who_repeats_does_the_same_again() -> None:
    plain = layout("a source, b any", "a=>b", 1, kept=True)
    assert Topology(plain).repeats == [info.everything for info in plain.processors]
    one = changed(plain, 1, repeats=False)
    assert Topology(one).repeats == [one.processors[0].everything, one.processors[1].nothing]
    assert Topology(layout("a source, b any", "a=>b", 1)).repeats is None


def test_what_is_behind_those_who_send_anew_is_known_and_so_are_their_edges() -> None:
    plain = layout("z sink, a source, b any, c chain, alone source", "b>c, a>b, c>z", 2)
    assert Topology(plain).after_anew == []
    assert not any(edge.anew for edge in Topology(plain).renewed)
    of = Topology(changed(changed(plain, 2, anew=True), 4, anew=True))
    assert of.after_anew == [of.flat(p, worker) for p in (0, 3) for worker in range(2)]
    assert {edge.source // 2 for edge in of.renewed if edge.anew} == {2}
