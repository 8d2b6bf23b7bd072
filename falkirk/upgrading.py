"""Change of a stopped job's program: `falkirk.upgrade`, and `falkirk upgrade`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from msgspec.structs import replace

from recovery.layout import Layout, lay_out
from recovery.store.address import StoreAddress, Where
from runtime.page.recorded import read_job
from runtime.program import Program
from runtime.supervisor.store import JobStore
from runtime.supervisor.upgrading import Change, Upgrade, plan_upgrade
from runtime.supervisor.upgrading import upgrade as carry_out
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.functions import functions_of
from timely.dataflow.plan import compile_plan


def upgrade(
    program: Dataflow | Callable[..., Dataflow] | Program,
    store: Where,
    renames: Mapping[str, str] | None = None,
    dry_run: bool = False,
    agree: Callable[[Upgrade], bool] | None = None,
) -> tuple[Change, ...]:
    """Change the program of a stopped job; the state of its operators stays.

    Operators are matched by name. Those of the same kind, with state of the same shape and input divided by the same key, keep
    what they have saved. Added ones begin empty. State of removed ones is dropped. Run the program then with that store.

    Args:
        program: the new one.
        renames: new names of operators, by former ones. One of its own name confirms an automatic name (count-1).
        dry_run: only say what would become of each operator.
        agree: asked with the plan before anything is written.

    Returns what becomes of each operator.

    Raises FalkirkError, with all reasons, where the store cannot go on with this program, and if a job uses the store. Nothing
    is changed then.

    >>> from tempfile import TemporaryDirectory
    >>> flow = falkirk.Dataflow()
    >>> words = flow.source("in", falkirk.Iterable("abc", epoch_every=1)).map(lambda c: 1 // "bac".index(c), name="share")
    >>> _ = words.key_by(lambda n: n).count(name="counts").capture("out")
    >>> new = falkirk.Dataflow()
    >>> words = new.source("in", falkirk.Iterable("abc", epoch_every=1)).map(lambda c: "bac".index(c), name="share")
    >>> counts = words.key_by(lambda n: n).count(name="counts")
    >>> _ = counts.capture("out"), words.distinct(name="seen").capture("more")
    >>> with TemporaryDirectory() as store:
    ...     try:
    ...         falkirk.run(flow, store=store)
    ...     except falkirk.FalkirkError:
    ...         pass  # division by zero
    ...     [(each.fate, each.name) for each in falkirk.upgrade(new, store) if each.fate != "same"]
    [('changed', 'share'), ('added', 'seen'), ('added', 'more')]
    """
    built = program if isinstance(program, Program) else Program(flow=program)
    graph = built.build().graph
    functions = functions_of(graph)

    def layout(workers: int) -> Layout:
        return replace(lay_out(compile_plan(graph, workers)), functions=functions)

    address = StoreAddress.of(store)
    if dry_run:
        with address.open() as opened:
            identity, _, _ = read_job(opened)
            return plan_upgrade(opened, identity, layout, renames or {}).changes
    address.open().close()  # of a store that is not there none is made
    with ExitStack() as resources:
        own = JobStore(resources, address, lambda note: None)
        plan = plan_upgrade(own.blobs, own.id, layout, renames or {}, own.incarnation)
        if plan.differs and (agree is None or agree(plan)):
            carry_out(own.blobs, own.id, plan, own.incarnation, time.time())
        return plan.changes
