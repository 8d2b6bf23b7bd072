"""Records of verbs on rows with a sign: one for each verb, row by row.

`Changes` has its methods of these records, SQL their treatment of expressions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import polars as pl
import polars.selectors as cs

from libraries.columns.operators.joins.joining import CHANGE
from libraries.columns.schemas.selections import flat
from libraries.columns.schemas.wildcards import sparing, sparing_named
from timely.errors import GraphError, user_site

LAST = (pl.exclude(CHANGE), pl.col(CHANGE))
"""Selection of all columns, with the sign as the last one."""


@dataclass(frozen=True, slots=True)
class OfSign:
    """Treatment of the sign by a verb of single rows."""

    verb: str
    does: str
    """First lines of the documentation."""
    shown: str
    """Example, behind the sales of two days."""
    mistakes: str | None = ""
    """GraphErrors beyond those of the verb of `Columns`; None: none at all."""
    spared: Sequence[str] = ()
    """Parameters with "all columns" meant without the sign."""
    prepare: Callable[[dict[str, Any]], None] | None = None
    """Check of the arguments, by parameter, and change of them."""
    last: tuple[pl.Expr, ...] = ()
    """Selection to put the sign back into its place."""

    def method(self, plain: Callable[..., Any], rows: Callable[[Any], Any], signed: Callable[[Any], Any]) -> Any:
        """Method of changes, made of the verb of columns.

        Args:
            plain: the verb of columns.
            rows: gives the rows of changes as columns.
            signed: gives columns as changes.
        """
        site = inspect.signature(plain)

        @wraps(plain)
        def method(self_: Any, *args: Any, **options: Any) -> Any:
            if self.spared or self.prepare is not None:
                args, options = self._given(site, args, options)
            made = plain(rows(self_), *args, **options)
            if self.last:
                made = made._choose("sign", *self.last)
            return tuple(signed(each) for each in made) if isinstance(made, tuple) else signed(made)

        of_changes: Any = method
        of_changes.__doc__ = self._text()
        back = str(site.return_annotation).replace("Self", "Changes")
        of_changes.__signature__ = site.replace(return_annotation=back)
        of_changes.__qualname__ = f"Changes.{self.verb}"
        return of_changes

    def _given(
        self, signature: inspect.Signature, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments for rows with the sign as a column."""
        try:
            bound = signature.bind(None, *args, **options)
        except TypeError:  # the verb itself says so, by its name
            return args, options
        bound.apply_defaults()
        given = bound.arguments
        for name in self.spared:
            value, kind = given[name], signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                given[name] = tuple(sparing(CHANGE, self.verb, value))
            elif kind is inspect.Parameter.VAR_KEYWORD:
                given[name] = sparing_named(CHANGE, self.verb, value)
            else:
                (given[name],) = sparing(CHANGE, self.verb, [value])
        if self.prepare is not None:
            self.prepare(given)
        return bound.args[1:], bound.kwargs

    def _text(self) -> str:
        raises = (
            "" if self.mistakes is None else f"Raises:\n    GraphError: as `Columns.{self.verb}`{self.mistakes}.\n\n"
        )
        return f"{self.does}\n\n{raises}{_SALES}{self.shown}"


_SALES = """\
>>> import polars as pl
>>> flow = falkirk.Dataflow()
>>> days = [pl.DataFrame({"shop": ["n", "s"], "price": [3, 4]}), pl.DataFrame({"shop": ["s"], "price": [6]})]
>>> sales = flow.columns("sales", falkirk.Batches(days))
"""

_BEST = """\
>>> best = sales.group_by("shop").agg(price=falkirk.agg.max("price"), changes=True)
"""

_RUN = """\
>>> [sorted(pl.DataFrame(batch).rows()) for _, batch in falkirk.run(flow).captured("out")]
"""


def _seen(chain: str, rows: str, before: str = _BEST) -> str:
    """Example of a chain of verbs, with its rows."""
    return f'{before}>>> seen = {chain}.capture("out")\n{_RUN}{rows}'


def _schema(chain: str, schema: str) -> str:
    """Example of a chain of verbs, with its columns."""
    return f"{_BEST}>>> {chain}.schema\nSchema([{schema}, ('change', Int8)])"


def _select(given: dict[str, Any]) -> None:
    exprs = [each for each in flat(given["exprs"]) if not _is_the_sign(each)]
    _check_kept("select", exprs, given["named"])
    given["exprs"], given["named"] = tuple(exprs), {**given["named"], CHANGE: pl.col(CHANGE)}


def _with_columns(given: dict[str, Any]) -> None:
    given["exprs"] = tuple(flat(given["exprs"]))
    _check_kept("with_columns", given["exprs"], given["named"])


def _is_the_sign(given: Any) -> bool:
    """True if the sign column is selected unchanged."""
    if isinstance(given, pl.Expr):
        return given.meta.is_column_selection() and given.meta.root_names() == [CHANGE]
    return bool(isinstance(given, str) and given == CHANGE)


def _check_kept(verb: str, exprs: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Refuse another column with the name of the sign."""
    made = [each.meta.output_name(raise_if_undetermined=False) for each in exprs if isinstance(each, pl.Expr)]
    if CHANGE in (*named, *made):
        raise GraphError(
            f"{user_site()}: {verb} of changes keeps the sign {CHANGE!r} by itself; give the column another name, or say "
            "rows() first, which has the sign as a column like others"
        )


def _drop(given: dict[str, Any]) -> None:
    if not all(isinstance(each, str) and each != CHANGE for each in flat(given["columns"])):
        raise GraphError(
            f"{user_site()}: drop of changes takes names of columns, and not that of the sign, {CHANGE!r}, which rows() "
            "makes a column like others"
        )


def _rename(given: dict[str, Any]) -> None:
    mapping = given["mapping"]
    if isinstance(mapping, Mapping):
        if CHANGE in (*mapping, *mapping.values()):
            raise GraphError(f"{user_site()}: rename of changes leaves the sign {CHANGE!r} as it is")
    elif callable(mapping):
        given["mapping"] = lambda each: each if each == CHANGE else mapping(each)


def _cast(given: dict[str, Any]) -> None:
    if not isinstance(given["dtypes"], Mapping):
        given["dtypes"] = {cs.all() - cs.by_name(CHANGE): given["dtypes"]}
    elif CHANGE in given["dtypes"]:
        raise GraphError(f"{user_site()}: cast of changes leaves the sign {CHANGE!r} as it is")


def _fill(verb: str, given: dict[str, Any]) -> None:
    if isinstance(given["value"], pl.Expr):  # a text is a value, also where it would be a pattern of names
        (given["value"],) = sparing(CHANGE, verb, [given["value"]])


_ITS_PLACE = ", and for a column in the place of the sign"
_ITS_TYPE = (pl.exclude(CHANGE), pl.col(CHANGE).cast(pl.Int8))
_ALL = "[[('n', 3, 1), ('s', 4, 1)], [('s', 4, -1), ('s', 6, 1)]]"

SIGNS = [
    OfSign(
        "select",
        "Polars' `select` on every batch; the sign is kept.",
        _seen('best.select(euros=pl.col("price") * 2)', "[[(6, 1), (8, 1)], [(8, -1), (12, 1)]]"),
        _ITS_PLACE,
        ("exprs", "named"),
        _select,
    ),
    OfSign(
        "with_columns",
        "Polars' `with_columns` on every batch. The sign stays, in the last column.",
        _seen(
            'best.with_columns(euros=pl.col("price") * 2)',
            "[[('n', 3, 6, 1), ('s', 4, 8, 1)], [('s', 4, 8, -1), ('s', 6, 12, 1)]]",
        ),
        _ITS_PLACE,
        ("exprs", "named"),
        _with_columns,
        LAST,
    ),
    OfSign(
        "filter",
        "Polars' `filter` on every batch, on added and retracted rows alike.",
        _seen('best.filter(pl.col("price") > 4)', "[[('s', 6, 1)]]"),
        ", and for an expression of several columns that calls a function",
        ("predicates",),
    ),
    OfSign(
        "branch",
        "Split changes into two streams: `predicate` true, and the others.",
        _seen(
            "cheap",
            "[[('n', 3, 1), ('s', 4, 1)], [('s', 4, -1)]]",
            f'{_BEST}>>> dear, cheap = best.branch(pl.col("price") > 4)\n',
        ),
        spared=("predicate",),
    ),
    OfSign(
        "inspect",
        "Call `function(batch)` on every batch, with the sign as a column.",
        f'{_BEST}>>> seen = best.inspect(lambda batch: print(len(batch), "rows")).capture("out")\n'
        ">>> result = falkirk.run(flow)\n2 rows\n2 rows",
    ),
    OfSign(
        "exchange",
        "Send rows with equal values in the columns `by` to the same worker.",
        _seen('best.exchange("shop")', _ALL),
    ),
    OfSign("broadcast", "Send every batch to every worker.", _seen("best.broadcast()", _ALL), None),
    OfSign(
        "leave",
        "This stream outside the scope it is in.\n\n"
        "Into a scope changes cannot go: totals begin anew there with each epoch.",
        _seen(
            'best.leave().filter(shop="s")',
            "[[('s', 4, 1)], [('s', 6, 1)]]",
            '>>> inside = sales.enter(flow.scope("inner"))\n' + _BEST.replace("sales", "inside"),
        ),
    ),
    OfSign(
        "probe",
        "Add a probe of the progress of this stream.",
        f"{_BEST}>>> best.probe(\"done\").name\n'done'",
        None,
    ),
    OfSign(
        "capture",
        "Deliver every batch with its time, and the sign as a column, to the program.",
        _seen("best", _ALL),
        None,
    ),
    OfSign(
        "to",
        "Write the stream to `sink`, epoch by epoch, with the sign as a column.",
        f"{_BEST}>>> best.to(falkirk.Console())\n>>> result = falkirk.run(flow)\n"
        "0: {'shop': 'n', 'price': 3, 'change': 1}\n0: {'shop': 's', 'price': 4, 'change': 1}\n"
        "1: {'shop': 's', 'price': 4, 'change': -1}\n1: {'shop': 's', 'price': 6, 'change': 1}",
    ),
    OfSign(
        "drop",
        "Rows without the named columns; the sign stays.",
        _schema('best.drop("shop")', "('price', Int64)"),
        ", and for the sign, or anything but names",
        prepare=_drop,
    ),
    OfSign(
        "rename",
        "Rename columns; the sign keeps its name.",
        _schema('best.rename({"price": "paid"})', "('shop', String), ('paid', Int64)"),
        ", and for the sign, or its name for another column",
        prepare=_rename,
    ),
    OfSign(
        "cast",
        "Convert columns to other types; the sign keeps its own.",
        _schema('best.cast({"price": float})', "('shop', String), ('price', Float64)"),
        ", and for the sign",
        prepare=_cast,
        last=_ITS_TYPE,
    ),
    OfSign("drop_nulls", "Rows without nulls, both added and retracted.", _seen('best.drop_nulls("price")', _ALL)),
    OfSign(
        "drop_nans",
        "Rows without NaN, both added and retracted.",
        _seen(
            'best.cast({"price": float}).drop_nans("price")',
            "[[('n', 3.0, 1), ('s', 4.0, 1)], [('s', 4.0, -1), ('s', 6.0, 1)]]",
        ),
    ),
    OfSign(
        "fill_null",
        "Replace nulls by `value`; the sign stays.",
        _seen(
            'best.select(rest=pl.col("price").replace(4, None)).fill_null(0)',
            "[[(0, 1), (3, 1)], [(0, -1), (6, 1)]]",
        ),
        prepare=partial(_fill, "fill_null"),
        last=_ITS_TYPE,
    ),
    OfSign(
        "fill_nan",
        "Replace NaN by `value`; the sign stays.",
        _seen(
            'best.select(root=(5.0 - pl.col("price")).sqrt().floor()).fill_nan(0.0)',
            "[[(1.0, 1), (1.0, 1)], [(0.0, 1), (1.0, -1)]]",
        ),
        prepare=partial(_fill, "fill_nan"),
        last=_ITS_TYPE,
    ),
    OfSign(
        "explode",
        "One row for each item of list columns, with the sign of the original row.",
        _seen(
            'best.select(coins=pl.concat_list(pl.col("price") - 1, 1)).explode("coins")',
            "[[(1, 1), (1, 1), (2, 1), (3, 1)], [(1, -1), (1, 1), (3, -1), (5, 1)]]",
        ),
        spared=("columns", "more_columns"),
    ),
    OfSign(
        "unnest",
        "Replace columns of structs by a column for each field; the sign stays.",
        _schema('best.select(of=pl.struct("shop", "price")).unnest("of")', "('shop', String), ('price', Int64)"),
        spared=("columns", "more_columns"),
    ),
]

REFUSED = ("distinct", "window", "split_late", "iterate", "sort", "connect_loop")
"""Verbs without a treatment of signs, refused before anything else of theirs."""
