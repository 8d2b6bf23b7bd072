"""Witness forest for epochs as times, compiled by Numba.

The same algorithm on arrays: an epoch bound is one uint64, φ and σ⁻¹ are the identity, and ceilings are rows of a pool.
Importing this module imports Numba, so only `epochs` does it, in the process that keeps a large dataflow's watermarks.
"""

# Numba infers the types of these loops by itself.
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

Loop = TypeVar("Loop", bound=Callable[..., Any])


def _jit(loop: Loop) -> Loop:
    try:
        compiled: Loop = numba.njit(cache=True, nogil=True)(loop)
    except RuntimeError:  # neither this folder nor the user's own cache can be written: compile in every process
        compiled = numba.njit(nogil=True)(loop)
    return compiled


# Columns of the pool of ceilings (int64; -1: none). UP and DOWN link the ceilings of one processor, FIRST, NEXT and BACK
# those that follow from one ceiling, MADE those made in the present update, newest first. MARK is for searches.
PROCESSOR, WITNESS, FIRST, NEXT, BACK, UP, DOWN, MADE, MARK = range(9)
COLUMNS = 9

# Cells of `control`.
FREE, USED, TOUCHED, OPTIONS_USED, NEWEST, RISEN, SEARCHES = range(7)
CELLS = 7


@_jit
def _roomy(pool, bounds, control):
    """Pool with a free row, grown if necessary."""
    if control[FREE] >= 0 or control[USED] < pool.shape[0]:
        return pool, bounds
    more = np.empty((2 * pool.shape[0], COLUMNS), np.int64)
    more[: pool.shape[0]] = pool
    more_bounds = np.empty(2 * bounds.size, np.uint64)
    more_bounds[: bounds.size] = bounds
    return more, more_bounds


@_jit
def _new(pool, bounds, control, p, bound):
    """New ceiling without a witness, in a pool with a free row."""
    node = control[FREE]
    if node >= 0:
        control[FREE] = pool[node, NEXT]
    else:
        node = control[USED]
        control[USED] += 1
    pool[node] = -1
    pool[node, PROCESSOR] = p
    bounds[node] = bound
    control[TOUCHED] += 1
    return node


@_jit
def _hang(pool, node, witness):
    old = pool[node, WITNESS]
    if old >= 0:
        after, back = pool[node, NEXT], pool[node, BACK]
        if back >= 0:
            pool[back, NEXT] = after
        else:
            pool[old, FIRST] = after
        if after >= 0:
            pool[after, BACK] = back
    pool[node, WITNESS] = witness
    pool[node, BACK] = -1
    pool[node, NEXT] = -1
    if witness >= 0:
        after = pool[witness, FIRST]
        pool[node, NEXT] = after
        if after >= 0:
            pool[after, BACK] = node
        pool[witness, FIRST] = node


@_jit
def _remove(pool, control, lowest, node):
    """Remove a ceiling, never a limit, from its processor."""
    up, down = pool[node, UP], pool[node, DOWN]
    pool[up, DOWN] = down
    if down >= 0:
        pool[down, UP] = up
    else:
        lowest[pool[node, PROCESSOR]] = up
    pool[node, NEXT] = control[FREE]
    control[FREE] = node


@_jit
def _may_rise(p, control, risen, listed, value, before):
    if not risen[p]:
        risen[p] = True
        listed[control[RISEN]] = p
        control[RISEN] += 1
        before[p] = value[p]


@_jit
def _take_down(pool, control, lowest, root, risen, listed, value, before):
    """Remove the tree below `root`; processors losing their lowest ceiling may rise."""
    # Depth first along the links themselves: a node is removed when nothing hangs on it any more.
    at = root
    while True:
        if pool[at, FIRST] >= 0:
            at = pool[at, FIRST]
            continue
        if at == root:
            return
        witness = pool[at, WITNESS]
        _hang(pool, at, -1)
        p = pool[at, PROCESSOR]
        # The lowest of a processor that already may rise is no longer the one at its watermark.
        if lowest[p] == at:
            _may_rise(p, control, risen, listed, value, before)
        _remove(pool, control, lowest, at)
        control[TOUCHED] += 1
        at = witness


@_jit
def _option_within(options, begin, count, most):
    """Index of the last of `count` ascending options up to `most`.

    The first one always is.
    """
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if options[begin + middle] <= most:
            low = middle
        else:
            high = middle
    return low


@_jit
def _fit_in(p, at, most, chain, options, begin, count):
    """Largest bound up to `most` for p, given `at` of an in-edge's source."""
    least = min(at, most)
    if not chain:
        return least
    return options[begin + _option_within(options, begin, count, least)]


@_jit
def _fit_out(p, port, at, most, chain, options, discards, begin, count):
    """Largest bound up to `most` for p, given `at` of an out-edge's target."""
    if port < 0:  # nothing is discarded on it that anybody asks for
        return most
    if not chain:
        return min(at, most)
    option = _option_within(options, begin, count, most)
    while option > 0 and at < discards[begin + option, port]:
        option -= 1
    return options[begin + option]


@_jit
def _leads_out(pool, node, mark):
    """True if `node` is outside the marked tree; if inside, its path is marked too."""
    at = node
    while at >= 0 and pool[at, MARK] != mark:
        at = pool[at, WITNESS]
    if at < 0:
        return True
    at = node
    while pool[at, MARK] != mark:
        pool[at, MARK] = mark
        at = pool[at, WITNESS]
    return False


@_jit
def _other_witness(p, more, value, chain, graph, options, discards, begin, count, pool, control, lowest, limit, risen):
    """Ceiling outside the tree of `limit` able to hold p at its value, or -1."""
    in_start, in_source, _, out_start, out_target, out_port = graph
    control[SEARCHES] += 1
    mark = control[SEARCHES]
    pool[limit, MARK] = mark
    here = value[p]
    for at in range(in_start[p], in_start[p + 1]):
        q = in_source[at]
        if q == p or risen[q] or _fit_in(p, value[q], more, chain, options, begin, count) != here:
            continue
        if _leads_out(pool, lowest[q], mark):
            return lowest[q]
    for at in range(out_start[p], out_start[p + 1]):
        q = out_target[at]
        if q == p or risen[q]:
            continue
        if _fit_out(p, out_port[at], value[q], more, chain, options, discards, begin, count) != here:
            continue
        if _leads_out(pool, lowest[q], mark):
            return lowest[q]
    return -1


@_jit
def append(p, bound, lost, segments, options, discards, control):
    """Append an option to a chain.

    `segments` has for each processor: begin, room, first, count.
    """
    begin, room, first, count = segments[p]
    if first + count == room:
        if first > room // 2:
            for i in range(count):
                options[begin + i] = options[begin + first + i]
                discards[begin + i] = discards[begin + first + i]
            segments[p, 2] = 0
        else:
            used = control[OPTIONS_USED]
            wider = 2 * room
            if used + wider > options.size:
                more = np.empty(2 * options.size + wider, np.uint64)
                more[:used] = options[:used]
                more_discards = np.empty((more.size, discards.shape[1]), np.uint64)
                more_discards[:used] = discards[:used]
                options, discards = more, more_discards
            for i in range(count):
                options[used + i] = options[begin + first + i]
                discards[used + i] = discards[begin + first + i]
            control[OPTIONS_USED] += wider
            segments[p, 0] = used
            segments[p, 1] = wider
            segments[p, 2] = 0
    place = segments[p, 0] + segments[p, 2] + count
    options[place] = bound
    discards[place] = lost
    segments[p, 3] = count + 1
    return options, discards


@_jit
def update(
    reports, bounds_in, lost_in, few, chains, graph, tree, scratch, segments, options, discards, pool, bounds, control
):
    """Raise limits and settle; the first entries of queue are the risen processors.

    The last value returned is their number.
    """
    in_start, in_source, _, out_start, out_target, out_port = graph
    value, lowest, highest = tree
    risen, before, listed, queue, queued = scratch
    control[RISEN] = 0
    for i in range(reports.size):
        p = reports[i]
        bound = bounds_in[i]
        if chains[p]:
            options, discards = append(p, bound, lost_in[i], segments, options, discards, control)
        limit = highest[p]
        control[TOUCHED] += 1
        kept = np.int64(-1)
        waits = lowest[p] != limit or risen[p]
        if waits:
            # It waits for others. What followed from its limit still does so from a lower ceiling of its own.
            if pool[limit, FIRST] >= 0:
                below = pool[limit, DOWN]
                if below >= 0:
                    control[SEARCHES] += 1
                    pool[limit, MARK] = control[SEARCHES]
                    if _leads_out(pool, below, control[SEARCHES]):
                        kept = below
        elif few:
            begin = segments[p, 0] + segments[p, 2]
            count = segments[p, 3]
            more = options[begin + 1] if chains[p] else bound
            kept = _other_witness(
                p, more, value, chains[p], graph, options, discards, begin, count, pool, control, lowest, limit, risen
            )
        if kept >= 0:
            _hang(pool, limit, kept)
            pool, bounds = _roomy(pool, bounds, control)
            node = _new(pool, bounds, control, p, bound)
            pool[node, DOWN] = limit
            pool[limit, UP] = node
            highest[p] = node
            continue
        if not waits:
            _may_rise(p, control, risen, listed, value, before)
        _take_down(pool, control, lowest, limit, risen, listed, value, before)
        bounds[limit] = bound

    # Let all rise to their lowest ceiling, and lower whatever violates a constraint.
    count_risen = control[RISEN]
    for i in range(count_risen):
        p = listed[i]
        value[p] = bounds[lowest[p]]
        queue[i] = p
        queued[p] = True
    control[NEWEST] = -1
    size = risen.size
    head, waiting = 0, count_risen
    while waiting > 0:
        p = queue[head]
        head = head + 1 if head + 1 < size else 0
        waiting -= 1
        queued[p] = False
        # Each pulls: it is lowered to what its neighbours admit, and wakes them if it was.
        begin = segments[p, 0] + segments[p, 2]
        count = segments[p, 3]
        chain = chains[p]
        fallen = False
        again = True
        while again:
            again = False
            low = value[p]
            witness = np.int64(-1)
            for at in range(in_start[p], in_start[p + 1]):
                q = in_source[at]
                if value[q] < low:
                    low = _fit_in(p, value[q], low, chain, options, begin, count)
                    witness = lowest[q]
            for at in range(out_start[p], out_start[p + 1]):
                q = out_target[at]
                fit = _fit_out(p, out_port[at], value[q], low, chain, options, discards, begin, count)
                if fit < low:
                    low = fit
                    witness = lowest[q]
            if low < value[p]:
                pool, bounds = _roomy(pool, bounds, control)
                node = _new(pool, bounds, control, p, low)
                _hang(pool, node, witness)
                pool[node, UP] = lowest[p]
                pool[lowest[p], DOWN] = node
                lowest[p] = node
                value[p] = low
                pool[node, MADE] = control[NEWEST]
                control[NEWEST] = node
                fallen = True
                again = chain  # an edge to itself may now bind once more
        if fallen:
            for at in range(in_start[p], in_start[p + 1]):
                q = in_source[at]
                if risen[q] and not queued[q]:
                    queued[q] = True
                    queue[(head + waiting) % size] = q
                    waiting += 1
            for at in range(out_start[p], out_start[p + 1]):
                q = out_target[at]
                if risen[q] and not queued[q]:
                    queued[q] = True
                    queue[(head + waiting) % size] = q
                    waiting += 1

    # Forget ceilings between the lowest and the limit from which nothing follows.
    node = control[NEWEST]
    while node >= 0:
        after = pool[node, MADE]
        if pool[node, FIRST] < 0 and lowest[pool[node, PROCESSOR]] != node:
            _hang(pool, node, -1)
            _remove(pool, control, lowest, node)
        node = after
    changed = 0
    for i in range(count_risen):
        p = listed[i]
        risen[p] = False
        if value[p] != before[p]:
            control[TOUCHED] += 1
            queue[changed] = p
            changed += 1
            if chains[p]:
                gone = _option_within(options, segments[p, 0] + segments[p, 2], segments[p, 3], value[p])
                segments[p, 2] += gone
                segments[p, 3] -= gone
    return options, discards, pool, bounds, changed
