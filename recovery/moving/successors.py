"""First content of the journals of a new layout: checkpoints and messages.

It is what so many workers would have had, had they cut all groups at these bounds. So nothing else needs to know of the move:
the job goes on as after any failure, and there is no time without a cut of its layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

from recovery.checkpoint.checkpoints import alike
from recovery.checkpoint.records import (
    Applied,
    Checkpoint,
    Keyed,
    Logged,
    Opening,
    Piece,
    Published,
    SourcePosition,
    keyed,
    save_batch,
    saving,
)
from recovery.layout import Layout
from recovery.memory.records import LogEntry
from recovery.metadata import Bound, Xi, nothing, union
from recovery.moving.former import FormerWorker
from recovery.moving.refusals import goes_everywhere, may_go_anywhere, parts_of, split_of
from timely.data.batch import Batch, concat
from timely.dataflow.graph import Node
from timely.dataflow.plan import Plan
from timely.errors import OperatorError
from timely.operators.channels import Exchange
from timely.state import is_transient
from timely.state.interface import Run
from timely.state.moving import Division, Mergeable, in_order, is_everywhere
from timely.state.shapes import digest_of
from timely.time import Time
from timely.worker.outbox import GENERATION_BITS

PIECE_ROWS = 1 << 16
"""Most rows of state in a piece, unless one run has more."""

PositionsAt = Callable[[Node, int, int, Mapping[str, SourcePosition]], tuple[SourcePosition, ...]]
"""Positions of a worker's partitions of a source.

Arguments: node, epoch, worker, former positions by partition."""


class Successors:
    """Holdings of the workers of `layout`, gathered from the former ones.

    Args:
        former: plan of the former layout.
        bounds: common bounds, by processor.
        generation: number of the move.
    """

    def __init__(
        self, former: Plan, plan: Plan, layout: Layout, bounds: Sequence[Bound], generation: int, positions: PositionsAt
    ) -> None:
        self._former = former
        self._plan = plan
        self._layout = layout
        self._bounds = tuple(bounds)
        self._generation = generation
        self._positions_at = positions
        count = len(layout.processors)
        workers = range(layout.workers)
        self._runs: list[list[list[Run]]] = [[[] for _ in range(count)] for _ in workers]
        """Runs of state, by new worker and processor."""
        self._merged: list[dict[int | str, list[list[Run]]]] = [{} for _ in range(count)]
        """Runs of mergeable states, by processor, part and former worker."""
        self._everywhere: list[dict[int | str, list[Run]]] = [{} for _ in range(count)]
        """Runs of states equal everywhere, by processor and part."""
        self._requests: list[list[dict[Time, Time]]] = [[{} for _ in range(count)] for _ in workers]
        """Event of each requested notification, by its time, by new worker and processor."""
        self._discards: list[list[Bound]] = [
            [nothing(layout.edges[e].summary.result_depth) for e in ports] for ports in layout.outgoing()
        ]
        self._positions: list[dict[str, SourcePosition]] = [{} for _ in range(count)]
        self._messages: list[list[tuple[int, int, Time, Time, Batch]]] = [[] for _ in workers]
        """Messages by new sender: edge, receiver, event, time, content."""
        self._edges = {edge.edge: edge for edge in layout.edges}

    # Gathering

    def take(self, worker: FormerWorker) -> None:
        """Take over the holdings of a former worker.

        Raises OperatorError, with the operator, for what has no place among the new workers.
        """
        for p, info in enumerate(self._layout.processors):
            if not info.chain or self._bounds[p] == info.nothing:
                continue
            try:
                self._take_processor(worker, p)
            except OperatorError as error:
                raise OperatorError(f"{info.kind} {info.name!r} ({info.site}) {_plainly(error)}") from error
        for entry in worker.messages():
            self._take_message(worker.index, entry)

    def _take_processor(self, worker: FormerWorker, p: int) -> None:
        checkpoint = worker.checkpoint(p)
        assert checkpoint is not None  # the common bounds are of checkpoints of all workers
        self._discards[p] = list(map(union, self._discards[p], checkpoint.xi.discards))
        for each in checkpoint.positions:
            if each.partition in self._positions[p]:
                raise OperatorError(
                    f"has a partition {each.partition!r} on several workers: give each a name of its own"
                )
            self._positions[p][each.partition] = each
        if checkpoint.held:
            raise OperatorError("keeps capabilities for later times, which cannot change workers yet")
        if worker.has_more_than_state(p):
            raise OperatorError("keeps more than its `state`, which no other worker could be given")
        reached = self._divide(worker, p)
        if not reached:
            reached = {worker.index % self._layout.workers}
        for event, time in checkpoint.requests:
            for new in reached:
                known = self._requests[new][p]
                known[time] = min(event, known.get(time, event))

    def _divide(self, worker: FormerWorker, p: int) -> set[int]:
        """Divide the state of a processor; return the new workers that some of it goes to."""
        parts = parts_of(worker.operator(p).state)
        split = split_of(self._plan, self._plan.processors[p].nodes[0])
        division = Division(worker.index, self._former.workers, self._layout.workers, split)
        by_part: dict[int | str, list[Run]] = {name: [] for name in parts}
        for run in worker.runs(p):
            by_part[run.part].append(run)
        reached: set[int] = set()
        for name, state in parts.items():
            runs = by_part[name]
            if is_everywhere(state):
                self._take_equal(p, name, worker.index, runs)
            elif isinstance(state, Mergeable):
                self._merged[p].setdefault(name, []).append(runs)
            elif runs and not worker.operator(p).moves_by_key:
                raise OperatorError(f"keeps {type(state).__name__} for later times, and does not say where they belong")
            elif (
                runs
                and is_transient(state)
                and not all(isinstance(run.batch, list) and _has_shards(run) for run in runs)
            ):
                raise OperatorError(f"keeps {type(state).__name__} for later times, whose keys nobody knows")
            else:
                for run in runs:
                    for new, part in enumerate(division.of(state, run)):
                        if part is not None:
                            self._runs[new][p].append(part)
                            reached.add(new)
        return reached

    def _take_equal(self, p: int, name: int | str, worker: int, runs: list[Run]) -> None:
        known = self._everywhere[p].setdefault(name, runs)
        if [run.batch for run in known] != [run.batch for run in runs]:
            raise OperatorError(f"should know the same on all workers, and worker {worker} knows something else")

    def _take_message(self, former: int, entry: LogEntry) -> None:
        """Take a message sent ahead: it is divided anew by the exchange's own key."""
        edge = self._plan.graph.edges[entry.edge]
        sender = former % self._layout.workers
        content = entry.content()
        receivers: Iterable[tuple[int, Batch | None]]
        if goes_everywhere(edge.channel):
            if entry.receiver:  # all former receivers were sent the same
                return
            receivers = [(receiver, content) for receiver in range(self._layout.workers)]
        elif self._plan.spreads(edge):
            channel = cast("Exchange", edge.channel)
            was_divided = self._former.workers > 1 and self._former.spreads(edge)
            if self._layout.workers == 1:
                receivers = [(0, content)]
            else:
                receivers = enumerate((channel.route if was_divided else channel.split)(content, self._layout.workers))
        else:
            where = may_go_anywhere(self._plan, self._plan.of_node[edge.target.node])
            if where is not None:
                target = self._layout.processors[self._edges[entry.edge].target]
                raise OperatorError(
                    f"{target.kind} {target.name!r} ({target.site}) has messages under way that were logged in front of it, "
                    f"and on which worker they arrive matters to the {where}"
                )
            receivers = [(sender, content)]
        for receiver, batch in receivers:
            if batch is not None and len(batch):
                self._messages[sender].append((entry.edge, receiver, entry.event, entry.time, batch))

    # Journals

    def sections(self, worker: int) -> Iterator[Keyed]:
        """Sections of the journal of a new worker; it takes them."""
        layout, generation = self._layout, self._generation
        yield keyed(Opening(layout))
        yield keyed(Applied(generation, self._bounds))
        published: list[tuple[int, Bound]] = []
        for p, info in enumerate(layout.processors):
            bound = self._bounds[p]
            if not info.chain or bound == info.nothing:
                continue
            if info.role in ("sink", "capture"):
                published.append((p, bound))
            with saving(info):
                yield from self._checkpoint(worker, p, bound)
        if published:
            yield keyed(Published(tuple(published)))
        number = generation << GENERATION_BITS
        messages, self._messages[worker] = self._messages[worker], []
        for edge, receiver, event, time, batch in messages:
            number += 1
            header, payload = save_batch(batch)
            cut = self._bounds[self._edges[edge].source]
            yield keyed(Logged(edge, receiver, number, event, time, header, cut, generation), payload)

    def _checkpoint(self, worker: int, p: int, bound: Bound) -> Iterator[Keyed]:
        info, layout = self._layout.processors[p], self._layout
        runs, self._runs[worker][p] = self._runs[worker][p], []
        for known in self._everywhere[p].values():
            runs += known
        state = parts_of(_made(self._plan, p))
        for name, former in self._merged[p].items():
            merge = state[name]
            assert isinstance(merge, Mergeable)
            runs += [Run(r.time, r.batch, name, r.slot, r.gone) for r in merge.merge(former, worker, layout.workers)]
        positions: tuple[SourcePosition, ...] = ()
        if info.role == "source":
            node = self._plan.processors[p].node
            positions = self._positions_at(node, int(bound[0]), worker, self._positions[p])
        pieces = [*_pieces(p, bound, runs)]
        yield keyed(
            Checkpoint(
                xi=Xi(p, bound, tuple(self._discards[p])),
                generation=self._generation,
                since=info.nothing if info.role in ("sink", "capture") else bound,
                pieces=len(pieces),
                requests=tuple((event, time) for time, event in sorted(self._requests[worker][p].items())),
                positions=positions,
                state=digest_of(info.state or ()),
            )
        )
        yield from pieces


def _made(plan: Plan, p: int) -> Any:
    factory = plan.processors[p].node.factory
    return None if factory is None else factory().state


def _pieces(p: int, bound: Bound, runs: Iterable[Run]) -> Iterator[Keyed]:
    """Pieces of state: runs in order of time, neighbours of one kind together."""
    number = rows = 0
    last: Run | None = None

    def place(run: Run) -> int:
        nonlocal number, rows, last
        if last is not None and (not alike(last.batch, run.batch) or rows + len(run.batch) > PIECE_ROWS):
            number, rows = number + 1, 0
        last, rows = run, rows + len(run.batch)
        return number

    for _, group in groupby(in_order(runs), place):
        together = list(group)
        header, payload = save_batch(concat([run.batch for run in together]))
        told = tuple((run.time, run.part, len(run.batch)) for run in together)
        slots = tuple(None if run.slot is None else (run.slot, run.gone) for run in together)
        yield keyed(Piece(p, bound, told, header, slots if any(slots) else ()), payload)


def _has_shards(run: Run) -> bool:
    return all(isinstance(record, tuple) and len(record) in (2, 3) and type(record[0]) is int for record in run.batch)


def _plainly(error: OperatorError) -> str:
    text = str(error)
    return text.removeprefix("it ")
