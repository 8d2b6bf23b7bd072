"""Layout of the job's program with other policies."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.msgpack import encode

from recovery.layout import Layout, lay_out
from recovery.policy.written import policy_of_text
from runtime.control import Propose, Proposed
from timely.dataflow.graph import Graph
from timely.dataflow.other_policies import OUTSIDE, with_policies
from timely.dataflow.plan import compile_plan
from timely.errors import FalkirkError


def proposed(graph: Graph, layout: Layout, question: Propose) -> Proposed:
    """Answer to a question, of the program of `layout`."""
    try:
        found = layout_under(graph, layout.workers, question.policies)
    except FalkirkError as error:
        return Proposed(question.number, b"", str(error) or "that is refused")
    except Exception as error:
        return Proposed(question.number, b"", f"this cannot be answered: {type(error).__name__}: {error}")
    return Proposed(question.number, encode(found))


def layout_under(graph: Graph, workers: int, policies: Mapping[str, str]) -> Layout:
    """Layout of a program with other policies, by region, as texts.

    Raises FalkirkError for an unknown region, for a text that is no policy, and for what the program would be refused for.
    """
    known = [region.name for region in graph.regions]
    for name in policies:
        if name != OUTSIDE and name not in known:
            there = ", ".join(map(repr, known)) if known else "there is none"
            raise FalkirkError(f"there is no region {name!r}: {there}; nothing before the = is all that is in none")
    chosen = {name: policy_of_text(text) for name, text in policies.items()}
    return lay_out(compile_plan(with_policies(graph, chosen), workers))
