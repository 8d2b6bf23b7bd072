"""First bounds of added operators.

An added operator begins empty. It may send nothing that those behind it have completed, and gets nothing that those in front
of it have sent before: so it begins at the newest bound of what is behind it, if that is not beyond what is in front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recovery.fixed_point.solve import PhysicalEdge
from recovery.metadata import NEVER, Bound, at_epoch
from recovery.reachability import behind


@dataclass(frozen=True)
class Beginnings:
    """Bounds of all processors, by flat index, and reasons against them.

    Attributes:
        bounds: those of known ones as they were.
        missed: edges by index, with the first epoch that comes on them: earlier ones were sent before.
    """

    bounds: list[Bound]
    reasons: list[str]
    missed: dict[int, int]


def begin(
    edges: Sequence[PhysicalEdge],
    depths: Sequence[int],
    sources: Sequence[bool],
    known: Mapping[int, Bound],
    names: Sequence[str],
) -> Beginnings:
    """Bounds for all but the `known` processors, which are at ends of epochs.

    Args:
        depths, sources, names: of all processors, by flat index.
    """
    ends = [(edge.source, edge.target) for edge in edges]
    back = [(target, source) for source, target in ends]
    epochs = {flat: bound[0] for flat, bound in known.items()}
    newest = max((epoch for epoch in epochs.values() if epoch < NEVER), default=0)
    new = [flat for flat in range(len(depths)) if flat not in known]
    found: dict[int, int] = {}
    for flat in new:
        later = [epochs[each] for each in behind(ends, [flat]) if each in epochs]
        if later or sources[flat]:
            found[flat] = max(later, default=newest)
    for flat in new:
        if flat not in found:
            before = behind(back, [flat])
            found_before = [epochs.get(each, found.get(each)) for each in before]
            epochs_before = [each for each in found_before if each is not None]
            found[flat] = min(epochs_before, default=0)
    epochs |= found
    reasons, missed = [], {}
    for index, (source, target) in enumerate(ends):
        if (source in known and target in known) or epochs[source] == epochs[target]:
            continue
        if epochs[source] < epochs[target]:
            reasons.append(
                f"{names[target]} is at {_place(epochs[target])}, and {names[source]}, which would send to it, at "
                f"{_place(epochs[source])}"
            )
        else:
            missed[index] = epochs[source]
    for flat in new:
        if sources[flat] and epochs[flat] == NEVER:
            reasons.append(f"{names[flat]} would send to what has seen the end of all its input")
    bounds = [known.get(flat, at_epoch(epochs[flat], depth)) for flat, depth in enumerate(depths)]
    return Beginnings(bounds, list(dict.fromkeys(reasons)), missed)


def _place(epoch: int) -> str:
    return "its end" if epoch == NEVER else f"epoch {epoch}"
