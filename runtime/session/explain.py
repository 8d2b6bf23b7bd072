"""Reasons holding back a frontier: for the API, and printed by Ctrl-\\."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from runtime.session.stacks import stacks_now
from timely.dataflow.graph import Node
from timely.progress.tracker import culprits
from timely.time import Time, leq, visible
from timely.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class Hold:
    """One reason holding back a frontier.

    There are `count` things of kind `what` at `where`, at `time`.

    >>> flow = falkirk.Dataflow()
    >>> seen = flow.input("words").key_by(str).count(name="counts").capture("out")
    >>> with falkirk.Session(flow) as session:
    ...     [(hold.what, hold.time) for hold in session.explain("counts")]
    ...     session.input("words").close()
    ...     session.run()
    [('the position', (0,))]
    """

    what: str
    where: str
    time: Time
    count: int

    def __str__(self) -> str:
        return f"{self.what} of {self.where} at {visible(self.time)}" + (f" (x{self.count})" if self.count > 1 else "")


def explain(worker: Worker, node: Node) -> list[Hold]:
    """Reasons, on any worker, holding back the frontier at the input of `node`.

    They are capabilities, messages and notifications.

    Empty when nothing can arrive there any more. On this worker it knows notifications one by one; of other workers it
    knows what their last progress said.
    """
    plan = worker.plan
    reach = [(place, s) for place, summaries in plan.arrivals[node.index].items() for s in summaries]
    of_place = {place: node for node in plan.graph.nodes if (place := _place(worker, node)) is not None}
    holds = []
    for place, time, count in culprits(worker.tracker, plan.topology, reach):
        owner = of_place.get(place)
        if owner is None:
            what = "message in flight"
        elif owner.kind in ("source", "input"):
            first = min(at for at, held in worker.tracker.outstanding(place).items() if held > 0)
            what = "the position" if time == first else "a later epoch"
        elif owner.kind == "gate":
            what = "what waits until it is durable"
        else:
            what = "a kept capability or pending notification"
        holds.append(Hold(what, plan.place_names[place], time, count))
    return holds


def report(worker: Worker) -> str:
    """Text report on a worker: pending notifications, with the reasons for each."""
    lines = [f"worker {worker.index} of {worker.plan.workers}, generation {worker.generation}:"]
    for node in worker.plan.graph.of_kind("source", "input"):
        time = worker.input_time(node.index)
        lines.append(f"  {node.kind} {node.name!r} is {'at its end' if time is None else f'at {visible(time)}'}")
    for processor, time in worker.pending():
        node = worker.plan.processors[processor].node
        lines.append(f"  {node.kind} {node.name!r} ({node.site}) waits for {visible(time)} to be complete, held by:")
        lines += [f"    {hold}" for hold in explain(worker, node) if _bears_on(hold.time, time)]
    for node in worker.plan.graph.nodes:
        if node.holds and (place := _place(worker, node)) is not None:
            for time, count in sorted(worker.tracker.outstanding(place).items()):
                hold = Hold("a kept capability or pending notification", str(node), time, count)
                lines.append(f"  {hold}, on any worker, is outstanding")
    if worker.queued_bytes:
        lines.append(f"  {worker.queued_bytes:,} bytes from other workers are queued")
    if worker.pressed_by:
        lines.append(f"  sources pause because of workers {sorted(worker.pressed_by)}")
    return "\n".join(lines)


def print_report(worker: Worker) -> None:
    """Print the report and the stacks of all threads on standard error, as Ctrl-\\ does."""
    stacks = stacks_now(f"worker {worker.index}", worker.acting)
    print(report(worker), stacks.text, sep="\n", file=sys.stderr, flush=True)


def _place(worker: Worker, node: Node) -> int | None:
    if node.kind == "probe":
        return None
    return worker.plan.processors[worker.plan.of_node[node.index]].place


def _bears_on(held: Time, time: Time) -> bool:
    shared = min(len(held), len(time))
    return leq(held[:shared], time[:shared])
