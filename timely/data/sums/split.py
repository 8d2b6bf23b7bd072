"""Exact float sums by group, by two plain additions a value.

A float is cut at a digit: into a multiple of a *unit*, and a rest of half a unit or less. The unit follows from the greatest
value and from the number of values in a group, so that the upper parts add up to what a float holds without rounding. So do
the rests, if they are multiples of a second unit, 2**-54 of the first one times that number (Rump, Ogita and Oishi, *Accurate
Floating-Point Summation*, 2008). A value with a rest that is no such multiple is far smaller than others, and is left out.
"""

from __future__ import annotations

from math import frexp

import numpy as np
import numpy.typing as npt

from timely.data.kernels.tables import Ids, are_loaded, compiled_loops, read_only

Floats = npt.NDArray[np.float64]

_TOO_LARGE = 2.0**960
_TOO_SMALL = 2.0**-900


def split_sums(groups: Ids, count: int, values: Floats, fullest: int) -> tuple[Floats, Ids]:
    """Two floats for each group with its exact sum, and the rows left out.

    Args:
        groups: the group of each value.
        fullest: no group has more values than this.
    """
    loops = are_loaded()
    most = _greatest(values, loops)
    if not _TOO_SMALL <= most < _TOO_LARGE:
        return np.zeros((count, 2)), np.flatnonzero(values)
    above, units = frexp(most)[1], max(2, (fullest - 1).bit_length())
    limit, upper, lower = 2.0**above, 1.5 * 2.0 ** (above + units), 1.5 * 2.0 ** (above + 2 * units - 54)
    if not loops:
        return _by_numpy(groups, count, values, (limit, upper, lower))
    found, left = np.zeros((count, 2)), np.empty(len(values), np.intp)
    given = read_only(np.ascontiguousarray(values))
    rows = compiled_loops().add_split(read_only(groups), given, limit, upper, lower, found, left)
    return found, left[:rows]


def _greatest(values: Floats, loops: bool) -> float:
    """Greatest magnitude below the limit."""
    if loops:
        return float(compiled_loops().greatest_size(read_only(np.ascontiguousarray(values)), _TOO_LARGE))
    sizes = np.abs(values)
    most = float(sizes.max(initial=0.0))
    return most if most < _TOO_LARGE else float(sizes[sizes < _TOO_LARGE].max(initial=0.0))


def _by_numpy(groups: Ids, count: int, values: Floats, bounds: tuple[float, float, float]) -> tuple[Floats, Ids]:
    limit, upper, lower = bounds
    with np.errstate(invalid="ignore"):  # infinities
        high = values + upper
        high -= upper
        low = values - high
        test = low + lower
        test -= lower
        misfits = test != low
        misfits |= np.abs(values) > limit
    left: Ids = misfits.nonzero()[0]
    if len(left):
        high[left], low[left] = 0.0, 0.0
    found = np.empty((count, 2))
    found[:, 0], found[:, 1] = np.bincount(groups, high, count), np.bincount(groups, low, count)
    return found, left
