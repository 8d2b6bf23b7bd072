"""Joins on equal columns as queries: within each epoch, or of all epochs so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import polars as pl

from libraries.spark.engine.refused import Refused
from libraries.spark.engine.totals import check_keys
from libraries.spark.engine.types import EPOCH, listed, quoted

_KINDS = {
    **{"inner": "join", "left": "left join", "right": "right join", "full": "full join", "lookup": "left join"},
    **{"semi": "left semi join", "anti": "left anti join"},
}


def join(
    left: str,
    right: str,
    schemas: tuple[pl.Schema, pl.Schema],
    on: Sequence[str],
    how: str,
    running: bool,
) -> str:
    """Query for a join of two views.

    Null keys match nothing.

    Running, a pair comes out at the later of its two epochs, a row that has a match at its own or that of the first match, and
    a row that looks up others at its own, with those that are not later.
    """
    _check(on, schemas)
    epoch = quoted(EPOCH)
    keys = _equal(on)
    mine = [f"a.{quoted(name)}" for name in schemas[0]]
    if how in ("right", "full"):  # what there is on either side
        mine = [
            f"coalesce(a.{quoted(name)}, b.{quoted(name)}) as {quoted(name)}" if name in on else f"a.{quoted(name)}"
            for name in schemas[0]
        ]
        keys.append(f"a.{epoch} = b.{epoch}")
        columns = listed(f"coalesce(a.{epoch}, b.{epoch}) as {epoch}", *mine)
    elif not running:
        keys.append(f"a.{epoch} = b.{epoch}")
        columns = listed(f"a.{epoch}", *mine)
    elif how == "lookup":
        keys.append(f"b.{epoch} <= a.{epoch}")
        columns = listed(f"a.{epoch}", *mine)
    else:
        columns = listed(f"greatest(a.{epoch}, b.{epoch}) as {epoch}", *mine)
        if how == "semi":
            key_list = listed(*map(quoted, on))
            right, how = f"(select {key_list}, min({epoch}) as {epoch} from {right} group by {key_list})", "inner"
            return f"select {columns} from {left} a join {right} b on {' and '.join(keys)}"
    if how not in ("semi", "anti"):
        columns = listed(columns, *_theirs(on, schemas))
    return f"select {columns} from {left} a {_KINDS[how]} {right} b on {' and '.join(keys)}"


Kept: TypeAlias = tuple[str, str]
"""Initial and next query of a state."""


def continued(
    left: str, right: str, schemas: tuple[pl.Schema, pl.Schema], on: Sequence[str], how: str, states: tuple[str, str]
) -> tuple[str, dict[str, Kept]]:
    """Running join of one epoch's rows with earlier rows, kept in the views `states`.

    Of an inner join rows of both sides are kept; where rows look up others only these; where they need a match, the rows that
    have none, and the keys that were there.
    """
    _check(on, schemas)
    epoch, key_list = quoted(EPOCH), listed(*map(quoted, on))
    columns = [listed(*map(quoted, each)) for each in schemas]
    some = " and ".join(f"{quoted(key)} is not null" for key in on)
    first = [f"select {of} from {view} where false" for of, view in zip(columns, (left, right), strict=True)]
    both = [
        f"select {of} from {view} where {some} union all select {of} from {state}"
        for of, view, state in zip(columns, (left, right), states, strict=True)
    ]
    keys = " and ".join(_equal(on))
    mine = listed(*(f"a.{quoted(name)}" for name in schemas[0]))
    if how == "semi":
        first[1] = f"select {key_list} from {right} where false"
        known = (
            f"select distinct {key_list} from (select {key_list} from {right} where {some} "
            f"union all select {key_list} from {states[1]})"
        )
        came = f"(select {key_list}, min({epoch}) as {epoch} from {right} group by {key_list})"
        waiting = f"select {mine} from ({both[0]}) a left anti join ({known}) b on {keys}"
        return (
            f"select a.{epoch}, {mine} from {left} a left semi join ({known}) b on {keys} "
            f"union all select b.{epoch}, {mine} from {states[0]} a join {came} b on {keys}",
            {states[0]: (first[0], waiting), states[1]: (first[1], known)},
        )
    theirs = listed(mine, *_theirs(on, schemas))
    found = f"select a.{epoch}, {theirs} from {left} a {_KINDS[how]} ({both[1]}) b on {keys}"
    if how == "lookup":
        return found, {states[1]: (first[1], both[1])}
    later = f"select b.{epoch}, {theirs} from {states[0]} a join {right} b on {keys}"
    return f"{found} union all {later}", {state: (first[n], both[n]) for n, state in enumerate(states)}


def _check(on: Sequence[str], schemas: tuple[pl.Schema, pl.Schema]) -> None:
    for each in schemas:
        check_keys(on, each)
    for key in on:
        if schemas[0][key] != schemas[1][key]:
            raise Refused(f"a join on columns of types {schemas[0][key]} and {schemas[1][key]}")


def _equal(on: Sequence[str]) -> list[str]:
    return [f"a.{quoted(key)} = b.{quoted(key)}" for key in on]


def _theirs(on: Sequence[str], schemas: tuple[pl.Schema, pl.Schema]) -> list[str]:
    """Non-key columns of the right side, renamed on a clash with the left side."""
    return [
        f"b.{quoted(name)} as {quoted(f'{name}_right' if name in schemas[0] else name)}"
        for name in schemas[1]
        if name not in on
    ]
