"""Rules about a family, as in Datalog: who descends from whom, and who is of the same generation, while facts come and go.

ancestor(x, z) :- parent(x, z).                      same(x, y) :- parent(p, x), parent(p, y).
ancestor(x, z) :- parent(x, y), ancestor(y, z).      same(x, y) :- parent(p, x), same(p, q), parent(q, y).

falkirk run examples/family.py
"""

from __future__ import annotations

import falkirk
from falkirk import Console, Dataflow, Iterable, differential

FACTS = [
    [(("Philip", "Charles"), 1), (("Philip", "Anne"), 1), (("Charles", "William"), 1), (("Anne", "Zara"), 1)],
    [(("William", "George"), 1), (("Zara", "Mia"), 1), (("Zara", "Lena"), 1)],
    [(("Philip", "Anne"), -1), (("Alice", "Anne"), 1)],  # a mistake is mended
]
"""Pairs (parent, child) and how often more they are there, epoch by epoch."""


def ancestors(parents: differential.Collection) -> differential.Collection:
    """Pairs (who, from whom all descend)."""
    by_child = parents.map(lambda pair: (pair[1], pair[0]))
    return differential.grow(
        lambda known: (
            known.map(lambda pair: (pair[1], pair[0]))
            .join(by_child, lambda middle, lower, upper: (upper, lower))
            .map(lambda pair: (pair[1], pair[0]))
            .concat(by_child)
            .distinct()
        ),
        parents,
    )


def same_generation(parents: differential.Collection) -> differential.Collection:
    """Pairs of two who are equally far below a common ancestor."""
    siblings = parents.join(parents, lambda parent, one, other: (one, other))

    def below(known: differential.Collection) -> differential.Collection:
        half = known.join(parents, lambda one, other, child: (other, child))
        return half.join(parents, lambda other, child, cousin: (child, cousin)).concat(siblings).distinct()

    return differential.grow(below, parents).filter(lambda pair: pair[0] < pair[1])


def build() -> Dataflow:
    """The program: it prints what becomes true (1) and what is true no more (-1)."""
    flow = Dataflow("family")
    facts = flow.source("facts", Iterable(FACTS, batch=1, epoch_every=1)).flat_map(lambda epoch: epoch)
    parents = differential.from_changes(facts)
    shown = ancestors(parents).map(lambda pair: f"{pair[0]} descends from {pair[1]}")
    shown = shown.concat(same_generation(parents).map(lambda pair: f"{pair[0]} and {pair[1]} are of one generation"))
    shown.changes().map(lambda change: f"{change[1]:+d} {change[0]}").to(Console())
    return flow


if __name__ == "__main__":
    falkirk.run(build())
