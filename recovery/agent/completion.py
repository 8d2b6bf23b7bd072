"""Completed times of a worker, by processor and by checkpoint group."""

from __future__ import annotations

from recovery.layout import Layout
from recovery.metadata import Bound, at_cut, cut_within, leaving_out, nothing, prefix, union
from recovery.reachability import behind
from timely.dataflow.plan import Plan
from timely.progress.tracker import frontier_at
from timely.time import Summary, Time
from timely.worker import restoring
from timely.worker.worker import Worker

_GROUP = -1


class GroupInputs:
    """Places and pending work with paths to group `number` of a layout, on one worker.

    Attributes:
        depth: the coordinates of its cuts.
        places: whatever comes from elsewhere leaves one of these first; its time after the summary (None: as it is, for what
            matters) is that at which it comes to a processor of the group.
        near: the processors whose waiting work can lead to the group, each with how many coordinates of its time can be relied
            on: all in the group's own loop, the epoch elsewhere. Empty where the group is cut between epochs only.
    """

    def __init__(self, plan: Plan, layout: Layout, number: int) -> None:
        members = layout.members(number)
        self.depth = layout.groups[number].depth
        places: dict[tuple[int, Summary | None], None] = {}
        for p in members:
            processor = plan.processors[p]
            for place, summaries in plan.arrivals[processor.nodes[0].index].items():
                for summary in summaries:
                    places[place, summary if self.depth > 1 else None] = None
            if processor.place is not None:
                places[processor.place, None] = None
        self.places = tuple(places)
        self.near: dict[int, int] = {}
        if self.depth > 1:
            backwards = [(edge.target, edge.source) for edge in layout.edges] + [(_GROUP, p) for p in members]
            self.near.update(dict.fromkeys(behind(backwards, [_GROUP]), 1))
            self.near.update((p, min(self.depth, layout.processors[p].depth)) for p in members)


class Completion:
    """Completed bounds of a worker.

    They never fall until a rollback, and neither does what was reported of them.
    """

    def __init__(self, plan: Plan, layout: Layout, worker: Worker) -> None:
        self._plan = plan
        self._layout = layout
        self._worker = worker
        self._groups = [GroupInputs(plan, layout, number) for number in range(len(layout.groups))]
        self.before = [info.nothing for info in layout.processors]
        """Completed bounds from before this generation, by processor.

        They hold whatever progress says.
        """
        self.reported: tuple[Bound, ...] | None = None
        """Bounds reported to the monitor in this generation, by group."""

    @property
    def within_epochs(self) -> bool:
        """True if a group is cut within epochs."""
        return any(group.depth > 1 for group in self._groups)

    def at(self, p: int) -> Bound:
        """Completed bound of processor `p`."""
        if self._worker.awaited:
            return self.before[p]
        info = self._layout.processors[p]
        depth, near = info.depth, self._groups[info.group].near
        local = restoring.look(self._worker)
        runtime, tracker = self._worker.runtimes[p], self._worker.tracker
        reach = tuple(
            (place, summary)
            for place, summaries in self._plan.arrivals[runtime.processor.nodes[0].index].items()
            for summary in summaries
        )
        times = [*frontier_at(tracker, reach), *runtime.ctx.pending]
        if runtime.processor.place is not None:
            times += tracker.leaving(runtime.processor.place)
        times += [at_cut(cut_within(time, min(near.get(op, 1), depth)), depth) for op, time in local]
        upto = leaving_out(times, depth)
        upto = union(upto if near else prefix(upto), self.before[p])
        # Work that waits here lowers all alike, and may lead nowhere near: what was said to be complete is, all the same.
        return upto if self.reported is None else union(upto, at_cut(self.reported[info.group], depth))

    def of_groups(self, busy: bool) -> tuple[Bound, ...]:
        """Completed bound of each group.

        If `busy`, work waits here: groups cut between epochs then stay as reported.
        """
        local = restoring.look(self._worker)
        upto = tuple(
            self.of_group(group, local) if not busy or group.depth > 1 else nothing(group.depth)
            for group in self._groups
        )
        return upto if self.reported is None else tuple(map(union, upto, self.reported))

    def of_group(self, group: GroupInputs, local: list[tuple[int, Time]]) -> Bound:
        """Latest bound of a group with nothing still to arrive.

        `local` is work that waits here.
        """
        leaving, depth = self._worker.tracker.leaving, group.depth
        times = [
            cut_within(time if summary is None else summary(time), depth)
            for place, summary in group.places
            for time in leaving(place)
        ]
        for op, time in local:
            if (near := group.near.get(op)) is not None:
                times.append(at_cut(cut_within(time, near), depth))
        return leaving_out(times, depth)
