"""Details of an operator or processor: F*(p), Ξ, and numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from monitor.coordination.options import Options
from monitor.explain.why import plain, plain_bound
from recovery.metadata import Bound, project
from recovery.protocol import END, ROWS, Observed

MOST_CHECKPOINTS = 20
"""Most checkpoints shown of a processor, the newest ones.

The page asks for one processor at a time, but often.
"""

Samples = Mapping[int, tuple[float, Observed]]


def operator_detail(options: Options, samples: Samples, operator: int) -> dict[str, Any]:
    """Details of one operator on every worker."""
    workers = []
    for worker in range(options.layout.workers):
        flat = options.topology.flat(operator, worker)
        workers.append(
            {
                "worker": worker,
                "low": plain_bound(options.low(flat)),
                "checkpoints": len(_options(options, flat)),
                **_numbers(samples, worker, operator),
            }
        )
    return {"operator": operator, "workers": workers}


def processor_detail(options: Options, samples: Samples, operator: int, worker: int) -> dict[str, Any]:
    """Details of one processor: its options, and Ξ of each (section 3.4).

    Isard and Abadi, *Falkirk Wheel*.
    """
    topology, layout = options.topology, options.layout
    flat = topology.flat(operator, worker)
    info = layout.processors[operator]
    outgoing = [layout.edges[index] for index in topology.outgoing[operator]]
    into = [layout.edges[index] for index in layout.incoming()[operator]]
    kept = _options(options, flat)
    collected = len(options.chains[flat]) - len(kept)
    checkpoints: list[dict[str, Any]] = []
    if info.chain:
        shown: list[tuple[Bound, tuple[Bound, ...]]] = kept[-MOST_CHECKPOINTS:]
    else:
        bound = options.completed(flat)
        shown = [(bound, tuple(project(edge.summary, bound) for edge in outgoing))]
    for bound, discards in reversed(shown):
        checkpoints.append(
            {
                "f": plain_bound(bound),
                "notified": plain_bound(bound),
                "delivered": [{"from": edge.source, "bound": plain_bound(bound)} for edge in into],
                "discarded": [
                    {"to": edge.target, "bound": plain_bound(lost), "logged": edge.logged}
                    for edge, lost in zip(outgoing, discards)
                ],
                "projected": [
                    {"to": edge.target, "bound": plain_bound(project(edge.summary, bound))} for edge in outgoing
                ],
            }
        )
    upto = options.upto[worker]
    return {
        "operator": operator,
        "worker": worker,
        "name": info.name,
        "kind": "chain" if info.chain else "any",
        "low": plain_bound(options.low(flat)),
        "completed": None if upto is None else plain_bound(upto[info.group]),
        "checkpoints": checkpoints,
        "taken_checkpoints": len(options.chains[flat]),
        "kept": len(kept),
        "collected": collected,
        **_numbers(samples, worker, operator),
    }


def processes(samples: Samples) -> list[dict[str, Any]]:
    """Process of each worker with a report of it; `at` is the report's time."""
    return [
        {"worker": worker, "generation": reported.generation, "at": at, **msgspec.structs.asdict(reported.process)}
        for worker, (at, reported) in sorted(samples.items())
        if reported.process is not None
    ]


def _options(options: Options, flat: int) -> list[tuple[Bound, tuple[Bound, ...]]]:
    low = options.low(flat)
    return [option for option in options.chains[flat] if option[0] >= low]


def _numbers(samples: Samples, worker: int, operator: int) -> dict[str, Any]:
    """Known numbers of the processor; none if its worker sent none."""
    if worker not in samples:
        return {"progress": None}
    report = samples[worker][1]
    column = np.frombuffer(report.numbers, dtype=np.int64).reshape(len(ROWS), -1)[:, operator].tolist()
    numbers = dict(zip(ROWS, column))
    ended = numbers.pop("epoch") >= END
    progress = [-1] if ended else [int(column[0]), plain(int(column[1]))]
    closely = next((each for each in report.closely if each.processor == operator), None)
    frontier = None if closely is None else [[plain(at) for at in time] for time in closely.frontier]
    numbers.pop("inner")
    numbers = {name: number for name, number in numbers.items() if number >= 0 or name == "kept_from"}
    working = [
        {"epoch": each.epoch, "what": each.what, "done": each.done, "total": each.total, "seconds": each.seconds}
        for each in report.working
        if each.processor == operator
    ]
    members = [
        {"name": each.name, "taken": each.taken, "busy": each.busy}
        for each in report.members
        if each.processor == operator
    ]
    numbers["at"] = samples[worker][0]
    return {"progress": progress, "frontier": frontier, "working": working, "members": members, **numbers}
