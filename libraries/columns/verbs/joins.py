"""Joins of two streams: keys of different names, and joins by event time.

`join` meets rows by columns that both sides have by one name. So keys are given such a name before, and what Polars leaves
out is left out behind: of a left or inner join the keys of the right side, of a right join those of the left one. In a full
join, and where a key is computed, both sides keep all that they have.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl

from libraries.columns.operators.joins.bounded import IntervalJoin
from libraries.columns.operators.windows import AT
from libraries.columns.schemas import inference as schemas
from libraries.columns.schemas.keys import column_of
from libraries.columns.verbs.stateless import C
from libraries.columns.verbs.windows import add_column_judge, check_time, whole_length
from timely.dataflow.wire import check_at_root
from timely.errors import GraphError, user_site
from timely.operators.channels import PIPELINE, Exchange
from timely.operators.watermark import LATE, ON_TIME, WATERMARKS
from timely.operators.window_shapes import Length

Keys: TypeAlias = "str | pl.Expr | Sequence[str | pl.Expr]"


@dataclass(frozen=True, slots=True)
class KeyPairs:
    """Pairs of equal keys of a join, of the left and the right side."""

    left: tuple[str | pl.Expr, ...]
    right: tuple[str | pl.Expr, ...]

    @property
    def shared(self) -> tuple[str, ...] | None:
        """The names of the keys, if each is a column of one name on both sides."""
        here, there = (tuple(each for each in keys if isinstance(each, str)) for keys in (self.left, self.right))
        return here if self.named and here == there else None

    @property
    def named(self) -> bool:
        """True if each key is a column."""
        return all(isinstance(each, str) for each in (*self.left, *self.right))


def key_pairs(on: Keys | None, left_on: Keys | None, right_on: Keys | None) -> KeyPairs:
    """Parse and pair the key arguments of `join`.

    Raises:
        GraphError: with the user's line, for none, or for what does not go together.
    """
    if on is not None and (left_on is not None or right_on is not None):
        raise GraphError(f"{user_site()}: join takes on=, or left_on= and right_on=, not both")
    if on is not None:
        both = _keys("on", on)
        return KeyPairs(both, both)
    if left_on is None or right_on is None:
        raise GraphError(f"{user_site()}: join needs the columns on which rows meet: on=, or left_on= and right_on=")
    left, right = _keys("left_on", left_on), _keys("right_on", right_on)
    if len(left) != len(right):
        raise GraphError(
            f"{user_site()}: join takes as many columns in left_on= as in right_on=, not {len(left)} and {len(right)}"
        )
    return KeyPairs(left, right)


def _keys(which: str, given: Any) -> tuple[str | pl.Expr, ...]:
    keys = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not keys or not all(isinstance(key, str | pl.Expr) for key in keys):
        raise GraphError(f"{user_site()}: join({which}=...) takes names of columns, not {given!r}")
    return tuple(column_of(key) or key for key in keys)


def join_of_pairs(
    left: C,
    right: C,
    pairs: KeyPairs,
    how: str,
    suffix: str,
    known: Mapping[str, Any] | None,
    join: Callable[[C, C, list[str], Mapping[str, Any] | None], C],
) -> C:
    """`join` of two streams on keys with different names, or computed keys.

    `join` joins on columns of one name, given the second stream's known columns.
    """
    schemas.joined(how, pairs.left, left.schema, right.schema, suffix, pairs.right)
    of_left = [key for key in pairs.left if isinstance(key, str)]
    of_right = [key for key in pairs.right if isinstance(key, str)]
    if pairs.named and how in ("inner", "left", "lookup", "semi", "anti"):
        there = right.schema if known is None else known
        one_sided = how in ("semi", "anti")
        if len({*of_left}) == len({*of_right}) == len(of_left) and (one_sided or _free(of_left, of_right, there)):
            names = dict(zip(of_right, of_left, strict=True))
            if one_sided:
                renamed = right.select(*(pl.col(key).alias(name) for key, name in names.items()))
            else:
                renamed = right.rename(names)
            return join(left, renamed, of_left, known and {names.get(name, name): kind for name, kind in known.items()})
    # The keys of both sides have names of their own. What comes out once is one of the columns that they are made of.
    hidden = [f"key {number}()" for number in range(len(pairs.left))]
    one, two = (
        [_expression(key).alias(name) for key, name in zip(keys, hidden, strict=True)]
        for keys in (pairs.left, pairs.right)
    )
    of_one = of_left if pairs.named and how == "right" else []
    of_two = of_right if pairs.named and how in ("inner", "left", "lookup") else []
    here = left.with_columns(*one)._without(of_one) if of_one else left.with_columns(*one)
    if how in ("semi", "anti"):
        other = right.select(*two)
    else:
        other = right.with_columns(*two)
        other = other._without(of_two) if of_two else other
    if known is not None:
        frame = pl.LazyFrame(schema=dict(known)).with_columns(two)
        known = frame.select(pl.all().exclude(of_two) if of_two else pl.all()).collect_schema()
    return join(here, other, hidden, known)._without(hidden)


def _free(left: Sequence[str], right: Sequence[str], there: Any) -> bool:
    """True if no other column of the right side has the name of a left key."""
    return (
        there is not None
        and not any(name in there for name in left if name not in right)
        and not ({*left} & {*right} - {one for one, other in zip(left, right, strict=True) if one == other})
    )


def _expression(key: str | pl.Expr) -> pl.Expr:
    return pl.col(key) if isinstance(key, str) else key


def interval_join(
    left: C,
    right: C,
    on: str,
    keys: tuple[str, ...],
    lower: Length,
    upper: Length,
    lateness: Length | None,
    name: str | None,
) -> tuple[C, C, C]:
    """Joined pairs, and the late rows of either side."""
    check_at_root(left, "join_interval() counts epochs and event time")
    instants = isinstance(lower, dt.timedelta)
    if isinstance(upper, dt.timedelta) != instants or not lower <= upper:  # type: ignore[operator]
        raise GraphError(
            f"{user_site()}: join_interval has two bounds of one kind, lower <= upper, not {lower!r} and {upper!r}"
        )
    for side in (left, right):
        check_time("join_interval", on, side, instants)
    schema = schemas.joined("inner", keys, left.schema, right.schema)
    low, high = whole_length(lower), whole_length(upper)
    chosen = name if name is not None else left.graph.fresh_name("join_interval")
    judges = [
        add_column_judge(side, f"{chosen}-{which}", on, lateness, instants, [AT])
        for side, which in ((left, "left"), (right, "right"))
    ]
    channel = Exchange(columns=keys)
    on_time, on_time_right = (left._of(judge, ON_TIME) for judge in judges)
    node = on_time._attach(
        "join_interval",
        chosen,
        channel,
        others=[(on_time_right, channel), *((left._of(judge, WATERMARKS), PIPELINE) for judge in judges)],
        factory=lambda: IntervalJoin(keys, low, high),
        notifies=True,
        stateful=True,
    )
    late, late_right = (left._of(judges[n], LATE, side.schema) for n, side in enumerate((left, right)))
    return left._of(node, schema=schema), late, late_right
