"""The family's rules, against networkx and a search by hand, after each epoch."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, product
from pathlib import Path

import networkx as nx
import pytest

from runtime.program import Program
from runtime.run import run

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "family.py"


@pytest.mark.parametrize("workers", [1, 2])
def test_family_tells_who_descends_from_whom_and_who_is_of_one_generation(
    workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    program = Program(path=str(EXAMPLE))
    run(program, workers)
    told: list[Counter[str]] = [Counter(), Counter(), Counter()]
    for line in capfd.readouterr().out.splitlines():
        epoch, change = line.split(": ", 1)
        by, fact = change.split(" ", 1)
        told[int(epoch)][fact] += int(by)
    namespace: dict[str, object] = {}
    exec(compile(EXAMPLE.read_text(), str(EXAMPLE), "exec"), {"__name__": "family"}, namespace)
    facts = namespace["FACTS"]
    assert isinstance(facts, list)
    parents: Counter[tuple[str, str]] = Counter()
    for changes, held in zip(facts, accumulate(told, _added), strict=True):
        for pair, by in changes:
            parents[pair] += by
        tree = nx.DiGraph([pair for pair, times in parents.items() if times])
        want = {f"{who} descends from {above}" for who in tree for above in nx.ancestors(tree, who)}
        want |= {
            f"{a} and {b} are of one generation"
            for a, b in product(tree, tree)
            if a < b and any(_steps(tree, top, a) & _steps(tree, top, b) for top in tree)
        }
        assert {fact for fact, times in held.items() if times} == want


def _added(before: Counter[str], more: Counter[str]) -> Counter[str]:
    both = Counter(before)
    both.update(more)
    return both


def _steps(tree: nx.DiGraph, top: str, below: str) -> set[int]:
    return {len(path) for path in nx.all_simple_paths(tree, top, below)}
