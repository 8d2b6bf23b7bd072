"""The ceilings of a forest of witnesses, in objects or in arrays, and what is true of them after every update."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise

from recovery.fixed_point.epochs import EpochForest
from recovery.fixed_point.forest import Forest
from recovery.metadata import Bound


@dataclass(frozen=True)
class Ceiling:
    """A node of the forest: what it follows from, and what follows from it."""

    bound: Bound
    witness: Hashable | None
    dependents: tuple[Hashable, ...]


def of_objects(forest: Forest) -> list[dict[Hashable, Ceiling]]:
    """The ceilings of each processor, from the lowest up."""
    return [
        {node: Ceiling(node.bound, node.witness, tuple(node.dependents)) for node in ceilings}
        for ceilings in forest._ceilings
    ]


def of_arrays(forest: EpochForest) -> list[dict[Hashable, Ceiling]]:
    """The same. Links lead there and back again; every row is in use or free, and there is no more room than twice that."""
    from recovery.fixed_point.compiled import BACK, DOWN, FIRST, FREE, NEXT, PROCESSOR, UP, USED, WITNESS

    pool, (_, lowest, highest) = forest._pool.tolist(), forest._tree
    found: list[dict[Hashable, Ceiling]] = []
    for p in range(len(lowest)):
        rows = [int(lowest[p])]
        while (up := pool[rows[-1]][UP]) >= 0:
            rows.append(up)
        assert rows[-1] == highest[p]
        assert [pool[row][DOWN] for row in rows[1:]] == rows[:-1]
        assert pool[rows[0]][DOWN] < 0
        assert {pool[row][PROCESSOR] for row in rows} == {p}
        found.append({})
        for row in rows:
            dependents, at, before = [], pool[row][FIRST], -1
            while at >= 0:
                assert max(pool[at][BACK], -1) == before
                dependents.append(at)
                before, at = at, pool[at][NEXT]
            witness = pool[row][WITNESS] if pool[row][WITNESS] >= 0 else None
            found[-1][row] = Ceiling((int(forest._bounds[row]),), witness, tuple(dependents))
    used, free, row = int(forest._control[USED]), list[Hashable](), int(forest._control[FREE])
    while row >= 0:
        free.append(row)
        row = pool[row][NEXT]
    assert sorted([*free, *(row for each in found for row in each)]) == list(range(used))  # type: ignore[type-var]
    assert used <= len(pool) <= 2 * used
    return found


def check(forest: Forest | EpochForest, first: bool) -> None:
    """The ceilings of a processor ascend to its limit, the only root, from its low-watermark; so do the options of a chain.

    `first`: this is the first update, after which something follows from each that is between the two. Later what followed
    may be gone.
    """
    of = of_objects(forest) if isinstance(forest, Forest) else of_arrays(forest)
    every = {node: ceiling for each in of for node, ceiling in each.items()}
    for p, each in enumerate(of):
        ceilings = list(each.values())
        assert (ceilings[0].bound, ceilings[-1].bound) == (forest.value(p), forest.limit(p))
        assert all(lower.bound < higher.bound for lower, higher in pairwise(ceilings))
        assert [ceiling.witness is None for ceiling in ceilings] == [False] * (len(ceilings) - 1) + [True]
        options = forest._bounds[p] if isinstance(forest, Forest) else [(int(at),) for at in forest.options_of(p)]
        assert options[0] == forest.value(p) or not forest._chains[p]
        assert not first or all(ceiling.dependents for ceiling in ceilings[1:-1])
    for node, ceiling in every.items():
        assert all(every[dependent].witness == node for dependent in ceiling.dependents)
        way = {node}
        while (up := every[node].witness) is not None:
            assert node in every[up].dependents
            assert up not in way, "it follows from itself"
            way.add(up)
            node = up
