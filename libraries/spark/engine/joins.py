"""Joins on equal columns as queries: within each epoch, or of all epochs so far."""

from __future__ import annotations

from collections.abc import Sequence

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
    """The query for a join of two views. Null keys match nothing.

    Running, a pair comes out at the later of its two epochs, a row that has a match at its own or that of the first match, and
    a row that looks up others at its own, with those that are not later.
    """
    for each in schemas:
        check_keys(on, each)
    for key in on:
        if schemas[0][key] != schemas[1][key]:
            raise Refused(f"a join on columns of types {schemas[0][key]} and {schemas[1][key]}")
    epoch = quoted(EPOCH)
    keys = [f"a.{quoted(key)} = b.{quoted(key)}" for key in on]
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
        theirs = {name: f"{name}_right" if name in schemas[0] else name for name in schemas[1] if name not in on}
        columns = listed(columns, *(f"b.{quoted(name)} as {quoted(alias)}" for name, alias in theirs.items()))
    return f"select {columns} from {left} a {_KINDS[how]} {right} b on {' and '.join(keys)}"
