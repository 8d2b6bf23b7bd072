"""Fingerprint of a graph's structure, without code.

It covers names, kinds, scopes, regions, edges and channels.

Workers compare fingerprints when they meet, and a store keeps its own: state that one program saved must not be given
to another. `differences` says in words what changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from timely.data.codec.typed import shown
from timely.dataflow.graph import Graph
from timely.errors import ProtocolError


def outline(graph: Graph, default: object = None) -> dict[str, object]:
    """The graph as plain data by operator name, for fingerprints and stores.

    Of a policy only its class counts and whether it logs what is sent; `default` is that of nodes without one.
    """
    nodes = graph.nodes
    inputs: dict[int, list[str]] = {node.index: [] for node in nodes}
    for edge in graph.edges:
        source = nodes[edge.source.node]
        inputs[edge.target.node].append(
            f"{edge.target.port} <- {source.name}:{edge.source.port} by {edge.channel.describe()}"
        )
    policies = {node.index: node.policy if node.policy is not None else default for node in nodes}
    return {
        node.name: {
            "kind": node.kind,
            "scope": str(node.scope),
            "region": node.region.name if node.region else None,
            "policy": None if policies[node.index] is None else type(policies[node.index]).__name__,
            "logs outputs": bool(getattr(policies[node.index], "log_outputs", False)),
            "inputs": sorted(inputs[node.index]),
            **({"delay": node.shift.add[-1]} if node.kind == "feedback" and node.shift.add[-1] != 1 else {}),
        }
        for node in nodes
    }


def fingerprint(graph: Graph, default: object = None) -> str:
    """Short hash of the graph's structure, equal for equal programs.

    The hash is the same in every process and version.
    """
    text = json.dumps(outline(graph, default), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_outlines = msgspec.json.Decoder(dict[str, dict[str, Any]])


def read_outline(text: str) -> dict[str, dict[str, Any]]:
    """Decode the JSON outline of a graph.

    Raises:
        ProtocolError: if it is none.
    """
    try:
        return _outlines.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"the outline of a dataflow cannot be read: {shown(error)}") from None


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Differences between two outlines, one line each; empty if equal."""
    lines = [f"operator {name!r} is gone" for name in before if name not in after]
    lines += [f"operator {name!r} is new" for name in after if name not in before]
    changed = changed_fields(before, after)
    return lines + [f"operator {name!r}: {text}" for name, fields in changed.items() for text in fields.values()]


def changed_fields(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """Changes of the nodes in both outlines, in words, by node and field."""
    return {
        name: {
            field: f"its {field} was {_of(old, field)!r} and is {_of(new, field)!r}"
            for field in {**old, **new}
            if _of(old, field) != _of(new, field)
        }
        for name, old in before.items()
        if isinstance(old, dict) and isinstance(new := after.get(name), dict)
    }


def _of(node: Mapping[str, object], field: str) -> object:
    return node.get(field, 1 if field == "delay" else None)
