"""Journals of a changed program, made of the former ones record by record.

Nothing is restored on the way: checkpoints, messages and histories keep their content, and get the numbers of the operators
that have them now. So any state can be carried that its own worker would restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.records import (
    Applied,
    Checkpoint,
    HistoryRecord,
    Keyed,
    Logged,
    Opening,
    Piece,
    Published,
    Record,
    keyed,
)
from recovery.metadata import Bound, Xi, holds, image, meet, nothing, within
from recovery.moving.matching import Matching
from timely.state.shapes import digest_of

Bounds = Sequence[Sequence[Bound]]
"""Bounds by worker and processor."""


class Carried:
    """Content of the journals of a changed program.

    Args:
        was: bounds of the former processors.
        now: bounds of the new ones; equal for those that are matched.
        generation: number of the change, above all generations so far.
    """

    def __init__(self, matching: Matching, was: Bounds, now: Bounds, generation: int) -> None:
        self._matching, self._was, self._now = matching, was, now
        self._generation = generation
        self._layout = matching.after
        self._new_edges = {
            matching.before.edges[old].edge: self._layout.edges[new].edge for new, old in matching.edges.items()
        }
        """New index in the graph of each former edge."""
        self._former_edges = {edge.edge: edge for edge in matching.before.edges}
        self._former_ports = {index: ports.index(index) for ports in matching.before.outgoing() for index in ports}
        self._outgoing = self._layout.outgoing()

    def lost(self, worker: int, records: Iterable[tuple[Record, Any]], checkpoints: Checkpoints) -> list[str]:
        """Reasons against the change: messages under way on removed edges."""
        kept = set(self._matching.processors.values())
        count: dict[int, int] = {}
        for record, _ in records:
            if (
                isinstance(record, Logged)
                and record.edge not in self._new_edges
                and self._is_sent(worker, record, checkpoints)
            ):
                edge = self._former_edges[record.edge]
                if edge.target in kept and not holds(self._was[record.receiver][edge.target], record.time):
                    count[record.edge] = count.get(record.edge, 0) + 1
        infos = self._matching.before.processors
        return [
            f"{number} message(s) from {infos[edge.source].name!r} to {infos[edge.target].name!r} are under way, and that way "
            "is gone: let the program as it was finish them first"
            for index, number in count.items()
            for edge in (self._former_edges[index],)
        ]

    def unpublished(self, checkpoints: Checkpoints, worker: int) -> list[int]:
        """Removed outputs with saved, unpublished results."""
        return [
            p
            for p in self._matching.removed
            if self._matching.before.processors[p].role in ("sink", "capture")
            and any(saved.runs for saved in checkpoints.of(p).chain(self._was[worker][p]))
        ]

    def sections(
        self, worker: int, records: Sequence[tuple[Record, Any]], checkpoints: Checkpoints
    ) -> Iterator[list[Keyed]]:
        """Sections of the journal of a worker, those of one key together.

        Args:
            records: of its former journal.
            checkpoints: loaded with them.
        """
        yield [keyed(Opening(self._layout))]
        yield [keyed(Applied(self._generation, tuple(self._now[worker])))]
        for checkpoint, pieces in self._cuts(worker, checkpoints):
            yield [keyed(checkpoint), *(keyed(piece, payload) for piece, payload in pieces)]
        yield from self._messages(worker, records, checkpoints)
        yield [keyed(Published(tuple(self._published(worker, checkpoints))))]

    def xis(self, worker: int, checkpoints: Checkpoints) -> list[Xi]:
        """Ξ of all checkpoints in the journal of a worker."""
        return [checkpoint.xi for checkpoint, _ in self._cuts(worker, checkpoints)]

    def _cuts(self, worker: int, checkpoints: Checkpoints) -> Iterator[tuple[Checkpoint, Sequence[tuple[Piece, Any]]]]:
        """Checkpoints with their pieces and payloads."""
        for p, info in enumerate(self._layout.processors):
            former = self._matching.processors.get(p)
            if not info.chain or self._now[worker][p] == info.nothing:
                continue
            if former is None or not self._matching.before.processors[former].chain:
                yield self._first(worker, p), ()
                continue
            last = self._was[worker][former]
            for saved in checkpoints.of(former).saved:
                if within(saved.bound, last):
                    xi = Xi(p, saved.bound, self._discards(worker, p, saved.checkpoint.xi, saved.bound == last))
                    pieces = [(replace(piece, processor=p), payload) for piece, payload in saved.runs]
                    yield replace(saved.checkpoint, xi=xi, pieces=len(pieces)), pieces

    def _first(self, worker: int, p: int) -> Checkpoint:
        """Checkpoint without state of an added processor."""
        bound = self._now[worker][p]
        xi = Xi(p, bound, tuple(self._discarded(worker, index, bound) for index in self._outgoing[p]))
        state = digest_of(self._layout.processors[p].state or ())
        return Checkpoint(xi, self._generation, bound, 0, (), (), (), state)

    def _discards(self, worker: int, p: int, was: Xi, last: bool) -> tuple[Bound, ...]:
        """D̄ of each out-edge at a former checkpoint; `last`: the one to begin at."""
        return tuple(
            was.discards[self._former_ports[self._matching.edges[index]]]
            if index in self._matching.edges
            else self._discarded(worker, index, was.bound)
            if last
            else nothing(self._layout.edges[index].summary.result_depth)
            for index in self._outgoing[p]
        )

    def _discarded(self, worker: int, index: int, bound: Bound) -> Bound:
        """D̄ of a new edge: everything sent up to `bound`, up to the receivers' bounds."""
        edge = self._layout.edges[index]
        if edge.logged:
            return nothing(edge.summary.result_depth)
        found = image(edge.discarding, bound)
        for receiver in range(self._layout.workers) if edge.spread else (worker,):
            found = meet(found, self._now[receiver][edge.target])
        return found

    def _messages(
        self, worker: int, records: Iterable[tuple[Record, Any]], checkpoints: Checkpoints
    ) -> Iterator[list[Keyed]]:
        """Logged messages and histories, in the order of the former journal."""
        new = {former: p for p, former in self._matching.processors.items()}
        found: dict[tuple[Any, ...], list[Keyed]] = {}
        for record, payload in records:
            carried: Record | None = None
            if isinstance(record, Logged) and record.edge in self._new_edges:
                if self._is_sent(worker, record, checkpoints):
                    carried = replace(record, edge=self._new_edges[record.edge])
            elif (
                isinstance(record, HistoryRecord)
                and record.processor in new
                and checkpoints.keeps(record.processor, record.generation, record.time)
            ):
                carried = replace(record, processor=new[record.processor])
            if carried is not None:
                each = keyed(carried, payload)
                found.setdefault(each[0], []).append(each)
        yield from found.values()

    def _is_sent(self, worker: int, record: Logged, checkpoints: Checkpoints) -> bool:
        """True for a valid message of an event within the bounds."""
        source = self._former_edges[record.edge].source
        return checkpoints.keeps(source, record.generation, record.event) and holds(
            self._was[worker][source], record.event
        )

    def _published(self, worker: int, checkpoints: Checkpoints) -> Iterator[tuple[int, Bound]]:
        """Published bounds: former ones, and those at which added outputs begin."""
        published = checkpoints.published.bounds()
        for p, info in enumerate(self._layout.processors):
            former = self._matching.processors.get(p)
            if former in published:
                yield p, published[former]
            elif former is None and info.role in ("sink", "capture"):
                yield p, self._now[worker][p]
