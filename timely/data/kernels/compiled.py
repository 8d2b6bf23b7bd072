"""Loops compiled by Numba, for work without a NumPy equivalent.

Importing this module imports Numba (up to half a second), so only `timely.data.kernels.tables` does it, at the
first big batch. Inputs are always passed read-only, so that each loop is compiled once a width.

Both tables are open addressing with linear probing over a power of two of slots, and never delete.
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


@numba.extending.intrinsic
def _word(typing_context: Any, data: Any, at: Any) -> Any:
    """Unaligned 8-byte load at data[at:], not expressible by NumPy views."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        pointer = builder.gep(array.data, [values[1]])
        word = context.get_value_type(numba.types.uint64)
        load = builder.load(builder.bitcast(pointer, word.as_pointer()))
        load.align = 1
        return load

    return numba.types.uint64(data, numba.types.int64), generate


_PRIME = np.uint64(0x9E3779B97F4A7C15)
_TAG = np.uint64(0xFFFFFFFF00000000)
_ID = np.uint64(0x00000000FFFFFFFF)
_S32 = np.uint64(32)
_S56 = np.uint64(56)
_S54 = np.uint64(54)
_S10 = np.uint64(10)
_FREE = np.uint64(0)
_HEAD_U = np.uint64(15)


@_jit
def _part(data, at, width):
    """Load of `width` (at most 8) bytes at data[at:], zero-padded, within bounds."""
    if width <= 0:
        return np.uint64(0)
    if at + 8 <= data.size:
        word = _word(data, at)
        return word if width >= 8 else word & ((np.uint64(1) << np.uint64(8 * width)) - np.uint64(1))
    word = np.uint64(0)
    for i in range(width):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@_jit
def _mix(h, word):
    h = (h ^ word) * _PRIME
    return h ^ (h >> _S32)


@_jit
def _rest(data, at, stop):
    """Hash of a long string's bytes behind its head."""
    h = np.uint64(stop - at)
    while at < stop:
        h = _mix(h, _part(data, at, min(stop - at, 8)))
        at += 8
    return h


@_jit
def _same(a, at_a, b, at_b, width):
    for i in range(0, width, 8):
        left = min(width - i, 8)
        if _part(a, at_a + i, left) != _part(b, at_b + i, left):
            return False
    return True


_BLOCK = 64
_HEAD = 15


@_jit
def string_ids(offsets, data, places, begin, out, slots, heads, key_offsets, key_bytes, count):
    """Fill out[begin:] with the id of each string, adding strings not seen before.

    offsets (n + 1), data: the strings, as Arrow lays them out.
    places: which of the strings are meant, by number; empty: all of them, in order.
    slots (uint64): the high half of the hash and id + 1; 0 is free.
    heads (uint64, 2 an id): the first 15 bytes of each known string, and its width in the last byte (16: longer).
    key_offsets, key_bytes: the strings known so far, in id order; `count` of them.
    Returns (row, count): stops at the first row for which there is no room, for the caller to grow and go on.

    What takes time is waiting for memory. So a block of rows goes through each step together: hash and read a slot,
    read the head of the candidate, compare. The reads of one step do not depend on each other and overlap.
    """
    mask = np.uint64(slots.size - 1)
    room = min(slots.size // 2, key_offsets.size - 1)
    direct = places.size == 0
    first = np.empty(_BLOCK, np.uint64)
    second = np.empty(_BLOCK, np.uint64)
    hashes = np.empty(_BLOCK, np.uint64)
    found = np.empty(_BLOCK, np.uint64)
    head_1 = np.empty(_BLOCK, np.uint64)
    head_2 = np.empty(_BLOCK, np.uint64)
    for block in range(begin, out.size, _BLOCK):
        rows = min(_BLOCK, out.size - block)
        for j in range(rows):
            place = block + j if direct else places[block + j]
            start = np.int64(offsets[place])
            stop = np.int64(offsets[place + 1])
            width = stop - start
            one = _part(data, start, min(width, 8))
            two = _part(data, start + 8, min(width - 8, 7))
            two |= np.uint64(min(width, _HEAD + 1)) << _S56
            h = _mix(_mix(two, one), two)
            if width > _HEAD:
                h = _mix(h, _rest(data, start + _HEAD, stop))
            h *= _PRIME
            first[j] = one
            second[j] = two
            hashes[j] = h
            found[j] = slots[(h >> _S32) & mask]
        for j in range(rows):
            known = np.int64(found[j] & _ID) - 1
            if known < 0:
                known = 0
            head_1[j] = heads[2 * known]
            head_2[j] = heads[2 * known + 1]
        for j in range(rows):
            one = first[j]
            two = second[j]
            if found[j] != _FREE and head_1[j] == one and head_2[j] == two and two >> _S56 <= _HEAD_U:
                out[block + j] = np.int64(found[j] & _ID) - 1
                continue
            place = block + j if direct else places[block + j]
            start = np.int64(offsets[place])
            width = np.int64(offsets[place + 1]) - start
            h = hashes[j]
            tag = h & _TAG
            at = (h >> _S32) & mask
            while True:
                slot = slots[at]
                if slot == _FREE:
                    used = np.int64(key_offsets[count])
                    if count >= room or used + width > key_bytes.size:
                        return block + j, count
                    key_bytes[used : used + width] = data[start : start + width]
                    key_offsets[count + 1] = used + width
                    heads[2 * count] = one
                    heads[2 * count + 1] = two
                    count += 1
                    slots[at] = tag | np.uint64(count)
                    out[block + j] = count - 1
                    break
                if slot & _TAG == tag:
                    known = np.int64(slot & _ID) - 1
                    if heads[2 * known] == one and heads[2 * known + 1] == two:
                        at_key = np.int64(key_offsets[known])
                        if width <= _HEAD or (
                            np.int64(key_offsets[known + 1]) - at_key == width
                            and _same(key_bytes, at_key + _HEAD, data, start + _HEAD, width - _HEAD)
                        ):
                            out[block + j] = known
                            break
                at = (at + np.uint64(1)) & mask
    return out.size, count


@_jit
def mark_missing(codes, known, places):
    """Collect the distinct codes without an id (-1 in `known`) in `places`.

    Returns their number. They are -2 in `known` then.
    """
    missing = 0
    for code in codes:
        if known[code] == -1:
            known[code] = -2
            places[missing] = code
            missing += 1
    return missing


@_jit
def move_strings(old, slots):
    """Rehash the strings of `old` into larger, empty `slots`.

    At most 2**32 slots, as the tag is 32 bits wide.
    """
    mask = np.uint64(slots.size - 1)
    for slot in old:
        if slot != 0:
            at = (slot >> _S32) & mask
            while slots[at] != 0:
                at = (at + np.uint64(1)) & mask
            slots[at] = slot


@_jit
def int_ids(values, begin, out, slots, keys, count, old, moved):
    """Fill out[begin:] with the id of each int64 value, adding new values.

    slots (int64): pairs of value, id + 1.

    old: the slots before, of which the first `moved` pairs are in `slots`, too. A new value goes into one of the others, which
    are still to be moved, or into `slots`: empty pairs that have been passed stay so.
    """
    mask = np.uint64(slots.size // 2 - 1)
    old_mask = np.uint64(max(old.size // 2, 1) - 1)
    passed = np.uint64(moved)
    room = min(slots.size // 4, keys.size)
    for row in range(begin, out.size):
        value = values[row]
        number = (np.uint64(value) * _PRIME) >> _S32
        into, at, last = slots, number & mask, mask
        if old.size != 0:
            place = number & old_mask
            while old[2 * place + np.uint64(1)] != 0 and old[2 * place] != value:
                place = (place + np.uint64(1)) & old_mask
            if old[2 * place + np.uint64(1)] != 0 or place >= passed:
                into, at, last = old, place, old_mask
        while into[2 * at + np.uint64(1)] != 0 and into[2 * at] != value:
            at = (at + np.uint64(1)) & last
        known = into[2 * at + np.uint64(1)]
        if known == 0:
            if count >= room:
                return row, count
            keys[count] = value
            count += 1
            known = count
            into[2 * at] = value
            into[2 * at + np.uint64(1)] = count
        out[row] = known - 1
    return out.size, count


@_jit
def _number_of(keys, at):
    """Hash of the key in column `at`."""
    number = np.uint64(0)
    for row in range(keys.shape[0]):
        number = (number ^ np.uint64(keys[row, at])) * _PRIME
        number ^= number >> _S32
    return number


@_jit
def _differ(a, at, b, there):
    """True if key `at` of a and key `there` of b differ."""
    row = 0
    while row < a.shape[0] and a[row, at] == b[row, there]:
        row += 1
    return row < a.shape[0]


@_jit
def key_ids(given, begin, out, slots, keys, count, old, moved):
    """Fill out[begin:] with the id of each multi-column key, as `int_ids` does.

    given: one key a column. slots (int64): id + 1, by hash.
    """
    mask = np.uint64(slots.size - 1)
    old_mask = np.uint64(max(old.size, 1) - 1)
    passed = np.uint64(moved)
    room = min(slots.size // 2, keys.shape[1])
    for row in range(begin, out.size):
        number = _number_of(given, row)
        into, at, last = slots, number & mask, mask
        if old.size != 0:
            place = number & old_mask
            while old[place] != 0 and _differ(keys, old[place] - 1, given, row):
                place = (place + np.uint64(1)) & old_mask
            if old[place] != 0 or place >= passed:
                into, at, last = old, place, old_mask
        while into[at] != 0 and _differ(keys, into[at] - 1, given, row):
            at = (at + np.uint64(1)) & last
        known = into[at]
        if known == 0:
            if count >= room:
                return row, count
            for part in range(keys.shape[0]):
                keys[part, count] = given[part, row]
            count += 1
            known = count
            into[at] = count
        out[row] = known - 1
    return out.size, count


@_jit
def move_keys(old, begin, end, keys, slots):
    """Rehash a range of `old` into the larger `slots`, disjoint from them."""
    mask = np.uint64(slots.size - 1)
    for place in range(begin, end):
        known = old[place]
        if known != 0:
            at = _number_of(keys, known - 1) & mask
            while slots[at] != 0:
                at = (at + np.uint64(1)) & mask
            slots[at] = known


@_jit
def move_ints(old, begin, end, slots):
    """Rehash a range of pairs of `old` into the larger `slots`, disjoint from them."""
    mask = np.uint64(slots.size // 2 - 1)
    for pair in range(begin, end):
        known = old[2 * pair + 1]
        if known != 0:
            value = old[2 * pair]
            at = ((np.uint64(value) * _PRIME) >> _S32) & mask
            while slots[2 * at + np.uint64(1)] != 0:
                at = (at + np.uint64(1)) & mask
            slots[2 * at] = value
            slots[2 * at + np.uint64(1)] = known


@_jit
def order_by_owner(owners, order, ends):
    """Stable counting sort of row numbers by owner.

    `order` (one place more than rows) gets the rows of owner 0, then of owner 1, and so on; `ends` the place behind
    those of each owner. A pass for each, without branches: counters side by side would wait for each other.
    """
    at = 0
    for owner in range(ends.size):
        for row in range(owners.size):
            order[at] = row
            at += owners[row] == owner
        ends[owner] = at


@_jit
def owners_of_integers(values, prime, mix_1, mix_2, workers, owners):
    """Worker of each integer key; False if a key lies beyond the hash's modulus.

    Then `owners` mean nothing.

    The hash is that of `timely.data.codec.hashing`, of which its upper ten bits count (`timely.data.routing`).
    """
    beyond = False
    for row in range(values.size):
        value = values[row]
        beyond |= (value >= prime) | (value <= -prime)
        h = np.uint64(value) * mix_1
        h = (h ^ (h >> _S32)) * mix_2
        owners[row] = ((h >> _S54) * workers) >> _S10
    return not beyond


@_jit
def count_owners(owners, counts):
    """Count the rows of each owner.

    A pass for each owner: that is done many rows at a time.
    """
    for owner in range(counts.size):
        found = 0
        for row in range(owners.size):
            found += owners[row] == owner
        counts[owner] = found


@_jit
def link_rows(hashes, first, end, heads, before):
    """Chain rows `first` to `end` into hash buckets.

    heads: by slot the last row + 1; before: by row the one before it in its slot, + 1.
    """
    mask = np.uint64(heads.size - 1)
    for row in range(first, end):
        slot = hashes[row] & mask
        before[row] = heads[slot]
        heads[slot] = row + 1


@_jit
def unlink_rows(hashes, first, end, heads, before):
    """Undo `link_rows` for the last rows."""
    mask = np.uint64(heads.size - 1)
    for row in range(end - 1, first - 1, -1):
        heads[hashes[row] & mask] = before[row]


@_jit
def _follow(at, place, wanted, hashes, before, places, rows, count):
    """Append a bucket's rows of equal hash as (place, row) pairs, in insertion order.

    Returns the number of pairs, also of those without room.
    """
    begin = count
    while at != 0:
        row = at - 1
        if hashes[row] == wanted:
            if count < rows.size:
                places[count] = place
                rows[count] = row
            count += 1
        at = before[row]
    if count <= rows.size and count - begin > 1:  # they came last first
        low, high = begin, count - 1
        while low < high:
            rows[low], rows[high] = rows[high], rows[low]
            low += 1
            high -= 1
    return count


@_jit
def find_rows(wanted, hashes, heads, before, places, rows):
    """Fill places and rows with the pairs of equal hash.

    As far as there is room; returns their number.
    """
    mask = np.uint64(heads.size - 1)
    count = 0
    for place in range(wanted.size):
        at = heads[wanted[place] & mask]
        count = _follow(at, place, wanted[place], hashes, before, places, rows, count)
    return count


@_jit
def pack_rows(hashes, count, starts, ends, order, packed):
    """Sort rows and hashes by bucket, keeping their order within a bucket.

    starts: by slot the place of its first row, and one entry more, all 0 at first; ends: room for an entry a slot.
    """
    mask = np.uint64(ends.size - 1)
    for row in range(count):
        starts[(hashes[row] & mask) + np.uint64(1)] += 1
    for slot in range(ends.size):
        ends[slot] = starts[slot]
        starts[slot + 1] += starts[slot]
    for row in range(count):
        slot = hashes[row] & mask
        order[ends[slot]] = row
        packed[ends[slot]] = hashes[row]
        ends[slot] += 1


@_jit
def find_packed_rows(wanted, starts, order, packed, hashes, heads, before, places, rows):
    """`find_rows` over packed rows followed by linked ones."""
    mask, linked = np.uint64(starts.size - 2), np.uint64(heads.size - 1)
    count = 0
    for place in range(wanted.size):
        slot = wanted[place] & mask
        for at in range(starts[slot], starts[slot + np.uint64(1)]):
            if packed[at] == wanted[place]:
                if count < rows.size:
                    places[count] = place
                    rows[count] = order[at]
                count += 1
        at = heads[wanted[place] & linked]
        count = _follow(at, place, wanted[place], hashes, before, places, rows, count)
    return count


@_jit
def divide_in_two(owners, first, words, out):
    """Partition words in two by owner (0 or 1), without branches.

    Those of owner 1 begin at `first`.
    """
    before = 0
    for row in range(owners.size):
        owner = owners[row]
        out[first + row - before if owner else before] = words[row]
        before += 1 - owner


@_jit
def divide_words(owners, begins, words, out):
    """Partition words by owner, advancing `begins` to the end of each part."""
    for row in range(owners.size):
        owner = owners[row]
        at = begins[owner]
        out[at] = words[row]
        begins[owner] = at + 1


@_jit
def count_rows(groups, rows):
    """Count rows by group, added to `rows`."""
    for at in range(groups.size):
        rows[groups[at]] += 1


@_jit
def present_groups(rows, present):
    """List the groups with rows in `present`; returns their number."""
    found = 0
    for group in range(rows.size):
        present[found] = group
        found += rows[group] != 0
    return found


@_jit
def count_values(values, low, counts):
    """Histogram of values of at least `low`, added to `counts`."""
    for at in range(values.size):
        counts[values[at] - low] += 1


@_jit
def number_values(counts, present, rows):
    """Dense numbers, in value order, for the values with rows.

    `present` and `rows` get each value (less the least possible one) and its rows, `counts` its number. Returns
    their number.
    """
    found = 0
    for value in range(counts.size):
        count = counts[value]
        some = count != 0
        present[found] = value
        rows[found] = count
        counts[value] = found if some else 0
        found += some
    return found


@_jit
def numbers_of_values(values, low, places, groups):
    """Group number of each value, looked up in the table of `number_values`."""
    for at in range(values.size):
        groups[at] = places[values[at] - low]


@_jit
def sum_integers(groups, values, sums):
    """Sum integers by group; True on 64-bit overflow, and then sums mean nothing."""
    left = np.int64(0)
    for at in range(groups.size):
        group = groups[at]
        value = values[at]
        before = sums[group]
        after = before + value
        left |= (after ^ before) & (after ^ value)
        sums[group] = after
    return left < 0


@_jit
def min_groups(groups, values, least):
    """Minimum by group, without branches; True if a NaN was met (result invalid)."""
    met_nan = False
    for at in range(groups.size):
        value = values[at]
        met_nan |= value != value
        group = groups[at]
        before = least[group]
        least[group] = value if value < before else before
    return met_nan


@_jit
def max_groups(groups, values, most):
    """Maximum by group, without branches; True if a NaN was met (result invalid)."""
    met_nan = False
    for at in range(groups.size):
        value = values[at]
        met_nan |= value != value
        group = groups[at]
        before = most[group]
        most[group] = value if value > before else before
    return met_nan


_HUGE = 2.0**960


@_jit
def _grow(parts, count, value):
    """Add a value to an exact expansion of floats; returns its new length.

    The first `count` of `parts` rise in size and share no digits.
    """
    kept = 0
    for at in range(count):
        part = parts[at]
        if abs(value) < abs(part):
            value, part = part, value
        high = value + part
        low = part - (high - value)
        if low != 0.0:
            parts[kept] = low
            kept += 1
        value = high
    if value != 0.0:
        parts[kept] = value
        kept += 1
    return kept


@_jit
def _pack(parts, count):
    """Compress an exact expansion of floats (Shewchuk's Compress); returns its length."""
    if count == 0:
        return 0
    bottom = count - 1
    high = parts[bottom]
    for at in range(count - 2, -1, -1):
        total = high + parts[at]
        low = parts[at] - (total - high)
        high = total
        if low != 0.0:
            parts[bottom] = high
            bottom -= 1
            high = low
    parts[bottom] = high
    top = 0
    for at in range(bottom + 1, count):
        total = parts[at] + high
        low = high - (total - parts[at])
        high = total
        if low != 0.0:
            parts[top] = low
            top += 1
    parts[top] = high
    return top + 1


@_jit
def _rounded(parts, count):
    """Nearest float to an exact expansion, ties to even."""
    if count == 0:
        return 0.0
    at = count - 1
    high = parts[at]
    low = 0.0
    while at > 0:
        at -= 1
        before = high
        high = before + parts[at]
        low = parts[at] - (high - before)
        if low != 0.0:
            break
    if at > 0 and ((low < 0.0 and parts[at - 1] < 0.0) or (low > 0.0 and parts[at - 1] > 0.0)):
        twice = 2.0 * low
        other = high + twice
        if other - high == twice:
            high = other
    return high


@_jit
def _settle(terms, row, width, value):
    """Add a value to a full row of terms by compressing it; returns the remainder."""
    parts = np.empty(width + 1, np.float64)
    count = 0
    for place in range(width):
        count = _grow(parts, count, terms[row, place])
    count = _pack(parts, _grow(parts, count, value))
    for place in range(width):
        terms[row, place] = parts[count - 1 - place] if place < count else 0.0
    return parts[0] if count > width else 0.0


@_jit
def add_terms(groups, values, begin, terms, width, far, rest):
    """Add values exactly to the float terms of their groups.

    `begin`: the first value; `width`: terms a group; `far`: gets the numbers of values from 2**960 up and of those
    that are not finite, which are left out.

    Returns (row, found): stops behind the first row of which something found no room, which is then `rest[0]`, for the caller
    to make more; how many `far` has. `rest[0]` is 0 where all is done.
    """
    found = 0
    rest[0] = 0.0
    for at in range(begin, groups.size):
        value = values[at]
        if not abs(value) < _HUGE:
            far[found] = at
            found += 1
            continue
        group = groups[at]
        first = terms[group, 0]
        second = terms[group, 1]
        after = first + value
        part = after - first
        value = (first - (after - part)) + (value - part)
        terms[group, 0] = after
        after = second + value
        part = after - second
        value = (second - (after - part)) + (value - part)
        terms[group, 1] = after
        place = 2
        while place < width and value != 0.0:
            before = terms[group, place]
            after = before + value
            part = after - before
            value = (before - (after - part)) + (value - part)
            terms[group, place] = after
            place += 1
        if value != 0.0:
            value = _settle(terms, group, width, value)
            if value != 0.0:
                rest[0] = value
                return at + 1, found
    return groups.size, found


@_jit
def greatest_size(values, limit):
    """Largest magnitude among values below `limit`."""
    most = 0.0
    for at in range(values.size):
        size = abs(values[at])
        size = size if size < limit else 0.0
        most = size if size > most else most
    return most


@_jit
def add_split(groups, values, limit, upper, lower, sums, left):
    """Add each value as two floats, split at the last digit of `upper`.

    Rows beyond `limit`, or with digits behind the last one of `lower`, are put into `left`; returns their number.
    See `split_sums`.
    """
    found = 0
    for at in range(groups.size):
        value = values[at]
        high = (value + upper) - upper
        low = value - high
        if (low + lower) - lower == low and abs(value) <= limit:
            group = groups[at]
            sums[group, 0] += high
            sums[group, 1] += low
        else:
            left[found] = at
            found += 1
    return found


@_jit
def round_terms(terms, width, sums):
    """Round each row's exact sum of terms to the nearest float."""
    parts = np.empty(width, np.float64)
    for row in range(sums.size):
        count = 0
        for place in range(width):
            count = _grow(parts, count, terms[row, place])
        sums[row] = _rounded(parts, count) + 0.0


@_jit
def _halves(value):
    scaled = value * 134217729.0
    high = scaled - (scaled - value)
    return high, value - high


@_jit
def square_terms(values, squares):
    """Square of each value as product and rounding error."""
    for row in range(values.size):
        value = values[row]
        product = value * value
        a, b = _halves(value)
        rest = ((a * a - product) + 2.0 * (a * b)) + b * b
        squares[0, row] = product
        squares[1, row] = rest if rest - rest == 0.0 else 0.0


@_jit
def _grow_by_product(parts, count, one, other):
    """Add a product to an exact expansion of floats."""
    product = one * other
    a, b = _halves(one)
    c, d = _halves(other)
    rest = ((a * c - product) + a * d + b * c) + b * d
    return _grow(parts, _grow(parts, count, rest), product)


@_jit
def spread_terms(counts, sums, squares, spreads):
    """Sums of squared deviations from the mean, from counts and exact sums."""
    parts = np.empty(sums.shape[1] * (sums.shape[1] + 1) + 2 * squares.shape[1], np.float64)
    for row in range(counts.size):
        number = np.float64(counts[row])
        count = 0
        for place in range(squares.shape[1]):
            if squares[row, place] != 0.0:
                count = _grow_by_product(parts, count, squares[row, place], number)
        for place in range(sums.shape[1]):
            if sums[row, place] != 0.0:
                count = _grow_by_product(parts, count, -sums[row, place], sums[row, place])
                for other in range(place):
                    count = _grow_by_product(parts, count, -2.0 * sums[row, place], sums[row, other])
        spreads[row] = max(_rounded(parts, count), 0.0) / number
