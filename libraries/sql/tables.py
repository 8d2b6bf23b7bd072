"""Tables of `from` and `join`, and resolution of column names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from libraries.sql.expressions import listed, polars, refuse
from libraries.sql.nodes import Node, text
from libraries.sql.relations import Mode, Relation, computed, joined

_JOINS = {
    "": "inner",
    "INNER": "inner",
    **{side: side.lower() for side in ("LEFT", "RIGHT", "FULL")},
    **{f"{side} OUTER": side.lower() for side in ("LEFT", "RIGHT", "FULL")},
    **dict.fromkeys(("SEMI", "LEFT SEMI"), "semi"),
    **dict.fromkeys(("ANTI", "LEFT ANTI"), "anti"),
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Stream with its columns by table and by name in the query (None: same names)."""

    relation: Relation
    tables: Mapping[str, Mapping[str, str] | None]
    merged: frozenset[tuple[str, str]] = frozenset()
    """Columns (table, name) merged with others by `using`."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """Coalesced columns of `using` in right and full joins, by name."""

    def column(self, node: Node) -> str:
        """Stream's column for a column of the query."""
        name, table = node.name, node.table
        if table and table not in self.tables:
            refuse(f"no table {table!r}; there are {listed(self.tables)}")
        if not table and name in self.shared:
            return self.shared[name]
        of = [self.tables[table]] if table else [self.unmerged(each) for each in self.tables]
        found = {name if names is None else names[name] for names in of if names is None or name in names}
        if not found:
            columns = [each for names in of for each in names or ()]
            refuse(f"no column {name!r}; there are {listed(dict.fromkeys(columns))}")
        if len(found) > 1:
            refuse(f"column {name!r} is in several tables; say which: {next(iter(self.tables))}.{name}")
        return found.pop()

    def knows(self, name: str) -> bool:
        """True if some table is known to have a column of this name."""
        return any(name in (names or ()) for names in self.tables.values())

    def unmerged(self, table: str) -> Mapping[str, str] | None:
        """Columns of a table without those merged with others."""
        names = self.tables[table]
        return names and {name: column for name, column in names.items() if (table, name) not in self.merged}

    def all(self, given: set[str]) -> Iterator[pl.Expr]:
        """All tables' columns in order; repeated names become `name:table`, as in Polars."""
        if len(self.tables) == 1:
            yield self.relation.all
            return
        for name, column in self.shared.items():
            yield pl.col(column).alias(name)
            given.add(name)
        for table in self.tables:
            yield from _named(table, self.unmerged(table) or {}, given)

    def all_of(self, table: str, given: set[str]) -> Iterator[pl.Expr]:
        """Columns of one table, named as by `all`."""
        if table not in self.tables:
            refuse(f"no table {table!r}; there are {listed(self.tables)}")
        if len(self.tables) == 1:
            yield self.relation.all
        else:
            yield from _named(table, self.tables[table] or {}, given)

    def filter(self, what: str, condition: Node) -> Rows:
        """Rows filtered by a condition."""
        kept = polars(condition, self.column, self.relation.schema)
        return replace(self, relation=Relation(computed(self.relation.settled(what), "filter", kept)))


def _named(table: str, names: Mapping[str, str], given: set[str]) -> Iterator[pl.Expr]:
    for name, column in names.items():
        yield pl.col(column).alias(f"{name}:{table}" if name in given else name)
        given.add(name)


def table(name: str, of: Relation) -> Rows:
    """Rows of one table."""
    return Rows(of, {name: None if of.schema is None else {each: each for each in of.schema}})


def join(rows: Rows, other: Rows, join: Node, mode: Mode) -> Rows:
    """Join of two sides as in a query."""
    ((name, names),) = other.tables.items()
    how = _JOINS.get(" ".join(filter(None, (join.side, join.kind))))
    if join.method:
        refuse(f"{text(join)}: name the columns that are equal: using (key)")
    if how is None or not (join.args.get("using") or join.args.get("on")):
        refuse(
            f"{text(join)}: joins are inner, left, right, full, semi and anti, on equal columns: using (key), or on a.key = "
            "b.key; join_interval is of event times that are near each other"
        )
    mine, theirs = rows.relation.schema, other.relation.schema
    if mine is None or theirs is None or names is None:
        refuse(f"{text(join)}: a join needs streams whose columns are known: see Columns.schema")
    pairs, rest = _conditions(join, rows, other)
    if how != "inner":
        rows, other = _before(how, rest, rows, other)
        rest = []
    left, right = [one for one, _ in pairs], [two for _, two in pairs]
    given = dict(zip(right, left, strict=True))
    free = not any(one != two and one in names and one not in given for one, two in pairs)
    kinds = [_common(mine[one], theirs[two]) for one, two in pairs]
    free = free and not any(kinds)
    suffix = f":{name}"
    merged = {(name, each.name) for each in join.args.get("using") or ()}
    if how not in ("right", "full") and free and len({*left}) == len({*right}) == len(pairs):
        # Where there is no match, a key of the right side is null and that of the left side is not: they are two columns.
        apart = {two: f"{two}{suffix}" for two in given} if how == "left" else {}
        renamed = other.relation.stream.select(
            *(pl.col(each).alias(given.get(each, each)) for each in theirs),
            *(pl.col(each).alias(copy) for each, copy in apart.items()),
        )
        one, two, on = rows.relation, Relation(renamed, other.relation.replaces), left
        there = {each: given.get(each, f"{each}{suffix}" if each in mine else each) for each in names} | apart
        found = Rows(
            Relation(joined(one, two, on, how, mode, suffix)), {**rows.tables, name: there}, rows.merged | merged
        )
        found = replace(found, shared=rows.shared)
    else:
        on = [f"key {number} of {name}()" for number in range(len(pairs))]
        one, two = (
            Relation(
                each.stream.with_columns(
                    *(
                        (pl.col(key) if kind is None else pl.col(key).cast(kind)).alias(key_)
                        for key, key_, kind in zip(keys, on, kinds, strict=True)
                    )
                ),
                each.replaces,
            )
            for each, keys in ((rows.relation, left), (other.relation, right))
        )
        there = {each: f"{each}{suffix}" if each in mine else each for each in names}
        shared = dict(rows.shared)
        if merged and how in ("right", "full"):
            keys_of = dict(zip(right, on, strict=True))
            shared |= {each: keys_of[each] for _, each in merged}
            merged |= {
                (table, each) for _, each in merged for table in rows.tables if each in (rows.tables[table] or ())
            }
        found = Rows(
            Relation(joined(one, two, on, how, mode, suffix)),
            {**rows.tables, name: there},
            rows.merged | merged,
            shared,
        )
    if how in ("semi", "anti"):
        return replace(rows, relation=found.relation)
    for each in rest:
        found = found.filter("a join", each)
    return found


def _common(one: pl.DataType, two: pl.DataType) -> pl.DataType | None:
    """Common type for a comparison of integers; None if no cast is needed or possible."""
    if one == two or not (one.is_integer() and two.is_integer()) or pl.UInt64 in (one, two):
        return None
    return pl.Int64()


def _before(how: str, conditions: list[Node], left: Rows, right: Rows) -> tuple[Rows, Rows]:
    """Sides of a join after its one-sided conditions have filtered them."""
    from sqlglot import exp

    for each in conditions:
        sides = {_side_of(column, left, right) for column in each.find_all(exp.Column)}
        if sides <= {"left"} and how in ("right", "semi"):
            left = left.filter("a join", each)
        elif sides <= {"right"} and how in ("left", "semi", "anti"):
            right = right.filter("a join", each)
        else:
            (name,) = right.tables
            takes = {
                "left": f"conditions on columns of {name!r} alone: it keeps all rows before, whatever holds of them",
                "anti": f"conditions on columns of {name!r} alone",
                "semi": "conditions on columns of one side alone",
                "right": f"conditions on columns before {name!r} alone: it keeps all rows of {name!r}, whatever holds of them",
                "full": "no others: it keeps all rows of both sides, whatever holds of them",
            }
            refuse(
                f"{text(each)}: beside equal columns, {'an' if how == 'anti' else 'a'} {how} join takes {takes[how]}"
            )
    return left, right


def _side_of(column: Node, left: Rows, right: Rows) -> str:
    """Side of a join with a condition's column: "left" or "right"."""
    if not column.table and left.knows(column.name) and right.knows(column.name):
        refuse(f"column {column.name!r} is in several tables; say which: {next(iter(right.tables))}.{column.name}")
    return "right" if _is_of(column, right) else "left"


def _is_of(column: Node, right: Rows) -> bool:
    """True if a column of a condition belongs to the right side."""
    ((name, names),) = right.tables.items()
    return column.table == name if column.table else column.name in (names or ())


def _conditions(join: Node, left: Rows, right: Rows) -> tuple[list[tuple[str, str]], list[Node]]:
    """Pairs of equal columns (left, right) of a join, and its other conditions."""
    from sqlglot import exp

    pairs: list[tuple[str, str]] = []
    rest: list[Node] = []
    if using := join.args.get("using"):
        for each in using:
            column = exp.column(each.name)
            pairs.append((left.column(column), right.column(column)))
        return pairs, rest
    on = join.args["on"]
    (name,) = right.tables
    for each in on.flatten() if isinstance(on, exp.And) else [on]:
        equal = each.unnest()
        sides = [equal.this, equal.expression] if isinstance(equal, exp.EQ) else []
        if not sides or not all(isinstance(side, exp.Column) for side in sides):
            rest.append(each)
            continue
        theirs = [side for side in sides if _is_of(side, right)]
        if len(theirs) == 2 or (not theirs and all(side.table for side in sides)):
            rest.append(each)
            continue
        if len(theirs) != 1:
            refuse(f"{text(each)}: one side must be a column of {name!r}; say which: {name}.key")
        (mine,) = [side for side in sides if side is not theirs[0]]
        pairs.append((left.column(mine), right.column(theirs[0])))
    if not pairs:
        refuse(f"{text(join)}: a join is on equal columns: using (key), or on a.key = b.key")
    return pairs, rest
