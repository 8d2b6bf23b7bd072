"""Layout: a plan's processors, edges, policies and checkpoint groups.

Processors of a group are checkpointed together.

A processor is *chain* when it can be restored only to what it has persisted, and *any* when it keeps nothing from one
time to the next and can be restored to every frontier that it has completed (Isard and Abadi, *Falkirk Wheel*, section
3.4). An edge is *logged* when what is sent on it can be sent again after a failure, and *lossy* when a failed sender
makes nothing again for its receiver (`recovery.policy.gaps`).

Both ends of any other edge always roll back to the same frontier: whatever the receiver forgets, the sender must make
again, and what the sender makes again, the receiver must have forgotten. So processors joined by such edges form a
*group*, and their checkpoints are *cuts* at common times; checkpoints at unequal ones would be of no use.
Cuts fall between epochs, or between the iterations of a loop: see `recovery.loops`.

An *eager* group is cut by each worker for itself, whenever an epoch is complete (`commits_per_worker`). Cuts of two
workers are then at common times only by chance, so what comes to it from other workers is logged. And all in it are
chains: what others have completed is known to the monitor alone, and a new one may know less of it than was made durable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from recovery.guarantees.classes import Operators, operators_of, why_arbitrary
from recovery.guarantees.demands import check_demands
from recovery.guarantees.promises import Promise, promises
from recovery.guarantees.repeating import divided
from recovery.loops import WITHIN, cut_within_epochs
from recovery.metadata import Bound, everything, nothing
from recovery.policy.at_least_once import check_at_least_once, given_anew, sending_anew
from recovery.policy.chosen import policy_of
from recovery.policy.gaps import check_gaps
from recovery.policy.policies import DEFAULT
from recovery.policy.saved_as_one import check_own_intervals, check_saved_as_one
from recovery.policy.traits import Interval, Policy, Saves, interval
from recovery.reachability import joined
from timely.dataflow.fingerprint import fingerprint, outline
from timely.dataflow.graph import Edge, Node, Region
from timely.dataflow.plan import Plan, Processor
from timely.errors import PACKAGES, GraphError
from timely.io.interface import source_repeats
from timely.operators.base import Operator
from timely.seen_functions import Functions
from timely.state import is_transient
from timely.state.shapes import Shape, shape_of
from timely.time import Summary, Time


class ProcessorInfo(msgspec.Struct, frozen=True):
    """Processor of the plan, on every worker.

    `role` is operator, source, sink (exactly once), output or capture.
    """

    name: str
    kind: str
    site: str
    region: str | None
    policy: str
    depth: int
    chain: bool
    group: int
    role: str
    history: bool = False
    """True if it persists its history, in place of state and outputs."""
    scope: tuple[str, ...] = ()
    """Names of the scopes around it, the outermost first, without the root."""
    finds_capabilities: bool = False
    """True if it regains capabilities in a rollback, by `on_restore` or by replay."""
    repeats: bool = False
    """True if redone work sends the same at each time, given the same input."""
    anew: bool = False
    """True if redone work is sent in the current epoch.

    Whatever it sent where before: see `recovery.policy.at_least_once`.
    """
    state: Shape | None = None
    """Shape of its operator's state; None in stores of earlier versions."""
    bare: bool = False
    """True if nothing of it is persisted, not even messages into later epochs."""
    comes_back_empty: bool = False
    """True if its state is lost with its worker: see `recovery.policy.gaps`."""
    remembers: bool = False
    """True if its work at a time may matter to that at later ones."""
    members: tuple[str, ...] = ()
    """Names of the operators of a fused chain, in order; none of a single operator."""
    early: bool = False
    """True if its output goes out when mates have it in memory: with W₁, before W."""

    @property
    def nothing(self) -> Bound:
        return nothing(self.depth)

    @property
    def everything(self) -> Bound:
        return everything(self.depth)


class EdgeInfo(msgspec.Struct, frozen=True):
    """Edge between processors.

    `spread`: from every worker to every worker; otherwise within each.
    """

    source: int
    port: int
    target: int
    target_port: int
    edge: int
    """Index of the edge in the graph."""
    spread: bool
    logged: bool
    depth: int
    add: tuple[int, ...]
    append: tuple[int, ...]
    ahead: bool = False
    """True if messages for later times than their event's are logged.

    They are logged if a cut lies between: a redone event does not send them again.
    """
    kept: bool = False
    """True if unlogged messages are kept in the sender's memory.

    It leads to other workers. See `recovery.memory.kept_messages`.
    """
    lossy: bool = False
    """True if a failed sender makes nothing again for the receiver."""

    @property
    def resends(self) -> bool:
        """True if some or all messages of this edge are logged.

        `logs` says of each one.
        """
        return self.logged or self.ahead

    def logs(self, event: Time, time: Time) -> bool:
        """True if a message at `time`, sent by an event at `event`, is logged."""
        return self.logged or (self.ahead and time != event)

    @property
    def summary(self) -> Summary:
        """Path summary of the edge, the source's."""
        return Summary(self.depth, self.add, self.append)

    @property
    def discarding(self) -> Summary:
        """Path summary for unlogged messages."""
        return Summary.identity(self.depth) if self.ahead else self.summary

    @property
    def feedback(self) -> bool:
        """True for a feedback: messages have later times than their events."""
        return any(self.add)


class GroupInfo(msgspec.Struct, frozen=True):
    """Group and its checkpoint interval: `epochs` or `seconds`, the earlier of both."""

    epochs: int | None
    seconds: float | None
    depth: int = 1
    """Coordinates of its cuts: 1 for epochs, 2 for iterations as well.

    Iterations are those of its loop.
    """
    eager: bool = False
    """True if each worker cuts it on its own, at each completed epoch."""
    independent: bool = False
    """True if eager, without input from other groups.

    Each of its cuts, once durable, is its low-watermark.
    """
    durable: float | None = None
    """Seconds between durable cuts, others in memory of mates; None: all are."""


class Layout(msgspec.Struct, frozen=True):
    """Plan as the monitor sees it; equal on all workers."""

    name: str
    fingerprint: str
    outline: str
    workers: int
    processors: tuple[ProcessorInfo, ...]
    edges: tuple[EdgeInfo, ...]
    groups: tuple[GroupInfo, ...]
    promises: tuple[Promise, ...] = ()
    """Promises of the outputs."""
    functions: Functions | None = None
    """Observable content of the program's functions, for its store.

    None in those of earlier versions, and among workers.
    """
    number: int = 0
    """Number among the layouts of a store; each change of workers adds one."""

    def outgoing(self) -> list[list[int]]:
        """Indexes in `edges` of each processor's out-edges: the order of `Xi.discards`."""
        return self._by([edge.source for edge in self.edges])

    def incoming(self) -> list[list[int]]:
        """Indexes in `edges` of each processor's in-edges.

        That is the order of `InMemory.delivered`.
        """
        return self._by([edge.target for edge in self.edges])

    def _by(self, ends: Iterable[int]) -> list[list[int]]:
        result: list[list[int]] = [[] for _ in self.processors]
        for index, end in enumerate(ends):
            result[end].append(index)
        return result

    def members(self, group: int) -> list[int]:
        """Processors of a group."""
        return [index for index, info in enumerate(self.processors) if info.group == group]


def lay_out(plan: Plan) -> Layout:
    """Layout of `plan`.

    Raises GraphError for a policy that does not fit its operator, for what recovery cannot bring back, and for an output that
    promises less than the program requires.
    """
    graph = plan.graph
    policies = [policy_of(processor.node) for processor in plan.processors]
    edges = tuple(_edges(plan, policies))
    check_saved_as_one(plan, policies, edges)
    _check_readers(plan, policies)
    check_at_least_once(plan, policies, edges)
    operators = operators_of(graph)
    check_gaps(plan, policies, operators)
    given = {p for p, processor in enumerate(plan.processors) if processor.node.policy is not None}
    unlogged = [(edge.source, edge.target) for edge in edges if not edge.logged and not edge.lossy]
    members = joined(len(plan.processors), [*unlogged, *_saved_as_one(plan, policies)])
    check_own_intervals(plan, policies, [[p for p in group if p in given] for group in members])
    group_of = {index: number for number, group in enumerate(members) for index in group}
    bare = [policy.saves == Saves.NOTHING for policy in policies]
    sending = {source for source, _ in unlogged}
    depths = [WITHIN if cut_within_epochs(plan, group, sending, bare) else 1 for group in members]
    edges = tuple(
        replace(edge, ahead=True) if edge.feedback and edge.depth == depths[group_of[edge.source]] else edge
        for edge in edges
    )
    saved = {edge.source for edge in edges if edge.resends}
    # Cuts of a loop can be any sets, each of which holds the one before. All in it is kept at one of them, also what keeps
    # nothing: then no two sets that matter are such that neither holds the other.
    saved |= {p for p, each in enumerate(plan.processors) if min(each.node.shift.depth, depths[group_of[p]]) >= WITHIN}
    repeats = _repeating(plan, edges, operators)
    processors = tuple(
        _info(processor, operators.get(processor.node.index), policies[p], group_of[p], p in saved, p in repeats)
        for p, processor in enumerate(plan.processors)
    )
    anew = sending_anew(policies, [info.chain or info.comes_back_empty for info in processors], edges)
    changing = given_anew(anew, edges) | {edge.target for edge in edges if edge.lossy}
    processors = tuple(
        replace(info, anew=p in anew, repeats=info.repeats and not info.comes_back_empty and p not in changing)
        for p, info in enumerate(processors)
    )
    fed = {group_of[edge.target] for edge in edges if group_of[edge.source] != group_of[edge.target]}
    groups = tuple(
        _group([policies[p] for p in group if p in given and processors[p].chain], depth, number in fed)
        for number, (group, depth) in enumerate(zip(members, depths))
    )
    promised = promises(graph, operators)
    check_demands(graph, promised)
    return Layout(
        graph.name,
        fingerprint(graph, DEFAULT),
        json.dumps(outline(graph, DEFAULT)),
        plan.workers,
        processors,
        edges,
        groups,
        promised,
    )


def _saved_as_one(plan: Plan, policies: Sequence[Policy]) -> Iterable[tuple[int, int]]:
    """Pairs of processors cut at common times without an unlogged edge.

    They are in a region with snapshots.
    """
    first: dict[Region, int] = {}
    for p, (processor, policy) in enumerate(zip(plan.processors, policies)):
        if policy.saved_together and processor.node.region is not None:
            yield first.setdefault(processor.node.region, p), p


def _check_readers(plan: Plan, policies: Sequence[Policy]) -> None:
    """Refuse readers of an operator's state with another policy than its own.

    State must be saved and brought back in the same way for both.
    """
    for processor, policy in zip(plan.processors, policies):
        for number in processor.node.reads:
            read = policies[plan.of_node[number]]
            # What saves nothing is refused for the state that it has.
            if policy is not read or (policy.saves > Saves.NOTHING and not policy.shares_state):
                raise GraphError(
                    f"the {processor.node} reads the state of the {plan.graph.nodes[number]}, and cannot have another policy "
                    "than that, nor any but Lazy: put both into a region, or arrange within the region of the reader"
                )


def _edges(plan: Plan, policies: list[Policy]) -> Iterable[EdgeInfo]:
    graph = plan.graph
    for processor in plan.processors:
        shift, policy = processor.node.shift, policies[processor.index]
        for routes in processor.routes:
            for route in routes:
                target = graph.nodes[route.edge.target.node]
                target_policy = policies[plan.of_node[target.index]]
                yield EdgeInfo(
                    source=processor.index,
                    port=route.edge.source.port,
                    target=plan.of_node[target.index],
                    target_port=route.port,
                    edge=route.edge.index,
                    spread=plan.spreads(route.edge),
                    logged=_logged(plan, route.edge, policy, target_policy),
                    depth=shift.depth,
                    add=shift.add,
                    append=shift.append,
                    ahead=processor.node.ahead and policy.saves > Saves.NOTHING,
                    kept=plan.spreads(route.edge) and plan.workers > 1,
                    lossy=policy.gap and not target_policy.gap,
                )


def _logged(plan: Plan, edge: Edge, policy: Policy, target_policy: Policy) -> bool:
    """True if an edge is logged.

    A region logs what leaves it; operators with a policy of their own log what leaves them, as a loop does as one.

    What comes to a region that logs its inputs is always logged: those in front need not be cut as often as it is.
    """
    source, target = plan.graph.nodes[edge.source.node], plan.graph.nodes[edge.target.node]
    if policy.saves == Saves.NOTHING or not plan.standing_open.isdisjoint((source.index, target.index)):
        return False
    if target_policy.logs_inputs and target.region is not source.region:
        return True
    if not policy.log_outputs:
        return False
    if target.region is not source.region:
        return True
    own = source.region is None or source.policy is not source.region.policy
    return own and target.policy is not source.policy


def _info(
    processor: Processor, operator: Operator | None, policy: Policy, group: int, saved: bool, repeats: bool
) -> ProcessorInfo:
    node = processor.node
    role = _role(node)
    if node.kind == "input":
        raise GraphError(
            f"the {node} is fed by hand, and what was fed by hand cannot be read again after a failure: "
            "use flow.source(...) where a store is given"
        )
    keeps = operator is not None and operator.state is not None and not is_transient(operator.state)
    if node.source is not None and not getattr(node.source, "rereadable", True) and not policy.clients_retry:
        raise GraphError(
            f"the {node} cannot be read again after a failure, so records that were under way would be lost: use another "
            "source where a store is given, or say that whoever sends will retry, by .policy(Ephemeral())"
        )
    history = policy.saves == Saves.EVENTS and role == "operator" and (node.stateful or keeps)
    empties = keeps and policy.gap
    if keeps and policy.saves < Saves.STATE and not policy.gap:
        raise GraphError(
            f"the {node} keeps state from one time to the next, which {policy.name} would lose: give it "
            'Lazy(every="1s") or LogHistory(), by a region of its own or by .policy(...)'
        )
    ahead = node.ahead and policy.saves > Saves.NOTHING
    return ProcessorInfo(
        name=node.name,
        kind=node.kind,
        site=str(node.site),
        region=node.region.name if node.region else None,
        policy=policy.name,
        depth=node.shift.depth,
        chain=role in ("source", "sink", "capture")
        or (keeps and not empties)
        or saved
        or ahead
        or policy.commits_per_worker,
        group=group,
        role=role,
        history=history,
        scope=tuple(scope.name for scope in node.scope.path()[1:]),
        finds_capabilities=operator is not None
        and (type(operator).on_restore is not Operator.on_restore or (history and operator.state is None)),
        repeats=repeats,
        state=_shape(operator),
        bare=policy.saves == Saves.NOTHING,
        comes_back_empty=empties,
        remembers=operator is not None and (keeps or ahead or (node.stateful and operator.state is None)),
        members=tuple(each.name for each in processor.nodes) if len(processor.nodes) > 1 else (),
        early=policy.durable is not None and role in ("sink", "capture"),
    )


def _shape(operator: Operator | None) -> Shape:
    """Shape of an operator's state, with attributes for user operators."""
    if operator is None:
        return ()
    ours = type(operator).__module__.partition(".")[0] in PACKAGES
    return shape_of(operator.state, {} if ours else vars(operator))


def _repeating(plan: Plan, edges: Iterable[EdgeInfo], operators: Operators) -> set[int]:
    """Processors with equal output when a time is redone, given equal input.

    A declaration of nondeterminism covers the function by which records find the operator's worker: it holds for senders, too.
    """
    apart = divided(plan.graph, plan.spreads, operators)
    repeats = {
        processor.index
        for processor in plan.processors
        if all(why_arbitrary(node, operators) is None and node.index not in apart for node in processor.nodes)
        and (processor.node.source is None or source_repeats(processor.node.source))
    }
    declared = {p.index for p in plan.processors if any(node.nondeterministic is not None for node in p.nodes)}
    return repeats - {edge.source for edge in edges if edge.spread and edge.target in declared}


def _role(node: Node) -> str:
    if node.kind == "source":
        return "source"
    if node.kind == "capture":
        return "capture"
    if node.sink is not None:
        return "sink" if getattr(node.sink, "exactly_once", False) else "output"
    return "operator"


def _group(policies: list[Policy], depth: int, fed: bool) -> GroupInfo:
    """Group with the shortest interval of its members' policies.

    Those are the policies that the program gave; by default where it gave none.
    """
    if any(policy.commits_per_worker for policy in policies):
        return GroupInfo(None, None, eager=True, independent=not fed)
    chosen = [interval(policy.every) for policy in policies if policy.every is not None]
    chosen = chosen or [interval(DEFAULT.every)]
    epochs = [each.epochs for each in chosen if each.epochs is not None]
    seconds = [each.seconds for each in chosen if each.seconds is not None]
    return GroupInfo(
        min(epochs, default=None), min(seconds, default=None), depth, durable=_durable_seconds(policies, chosen)
    )


def _durable_seconds(policies: list[Policy], chosen: list[Interval]) -> float | None:
    """Seconds between durable cuts of a group; None: each is durable.

    Members that say nothing of mates need theirs durable as often as they are made.
    """
    if all(policy.durable is None for policy in policies):
        return None
    wanted = [interval(every) for policy in policies if (every := policy.durable or policy.every) is not None]
    if any(each.seconds is None for each in wanted):
        return None  # epochs are not counted here
    seconds = min(each.seconds for each in wanted if each.seconds is not None)
    shortest = min((each.seconds for each in chosen if each.seconds is not None), default=seconds)
    return seconds if seconds > shortest or any(each.epochs is not None for each in chosen) else None
