"""`Collection`: a changing multiset of records, and incremental operators on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Any, NoReturn

import numpy as np
import polars as pl

from libraries.columns.verbs.columns import Columns, Stream
from libraries.differential import reducers
from libraries.differential.arrangement import TraceReading
from libraries.differential.channel import BY_KEY
from libraries.differential.checked import over_columns
from libraries.differential.joins import Join
from libraries.differential.operators import Arrange, Consolidate, Reduce
from libraries.differential.reducers import Group, Reducer
from libraries.differential.rows import NOTHING, Rows, as_key, as_pairs, made_rows, of_key, rows_of, split
from recovery.policy.chosen import as_policy
from timely.data.absent import ABSENT
from timely.data.batch import Batch
from timely.dataflow.graph import Graph, Output, Scope
from timely.dataflow.wire import Capture, Loop, Probe, add_feedback, check_callable, no_attribute
from timely.errors import GraphError, user_site
from timely.io.interface import Sink
from timely.operators.channels import PIPELINE
from timely.operators.shaping import check_result

LIMIT = 100_000
"""Default limit of a loop's iterations, beyond which it counts as endless."""


_GUESSED = {
    "groupby groupbykey aggregate agg fold reducebykey aggregatebykey combinebykey groupreduce": "records are pairs (key, "
    "value): reduce(f), count(), sum(), min(), max() and top(n) are of the values of each key",
    "merge union unionall add plus append": "concat(others) adds multisets up; distinct() leaves each record once",
    "intersect intersection isin": "semijoin(keys) leaves the records whose key is among others",
    "subtract difference exceptall subtractbykey": "minus(other) takes records away, antijoin(keys) those of some keys",
    "innerjoin leftjoin outerjoin fullouterjoin leftouterjoin rightjoin rightouterjoin crossjoin cogroup": "joins are join, "
    "left_join, full_join, semijoin and antijoin, on the keys of pairs (key, value)",
    "keyby mapvalues keys values withkey": "a key is the first of a pair: map(lambda record: (key, value))",
    "mapvalue mappair foreach apply": "map(f) is of records, map_pairs(f) of keys and values, also in columns",
    "where select query": "filter(f) leaves the records for which f is true, map(f) makes others of them",
    "flatmapvalues explode": "flat_map(f) gives all that f(record) gives",
    "dropduplicates unique": "distinct() leaves each record once",
    "countbykey countbyvalue size len mean avg average": "count() and sum() are of each key; for a mean, join them",
    "fixedpoint loop fixpoint": "iterate(body) goes on until nothing changes",
    "collect show toseries topandas snapshot results output sink write": "capture(name) gives the changes, which "
    "differential.snapshot adds up; to(sink) writes them",
    "arrangeby arrangebykey index cache persist": "arrange() keeps one trace by key for all verbs behind it",
    "inspect print debug": "changes() is a stream of (record, difference), which has inspect",
    "sort sortby orderby limit head take": "top(n) gives the greatest values of each key, or the least",
    "consolidatestream sumup": "consolidate() sums the changes of each time up",
    "exchange partition repartition": "keyed verbs bring equal keys together by themselves",
    "delay window tumble": "windows are of streams; in a collection make the window a part of the key",
}
_HINTS = {name: advice for names, advice in _GUESSED.items() for name in names.split()}
"""Advice by a method's name in other systems, in small letters and without `_`."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Collection:
    """Changing multiset of records, represented by its changes as a stream.

    A record is anything that can be hashed. Keyed verbs take pairs (key, value); what is no pair is its own key, with the
    value None.
    """

    stream: Stream
    arrangement: int | None = None
    """Node of the collection's shared trace, made by `arrange`; None without one."""

    def __repr__(self) -> str:
        return f"Collection({self.stream!r})"

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute(self, name, _HINTS.get(name.replace("_", "").lower()))

    @property
    def scope(self) -> Scope:
        """Scope of the collection: a loop, or the root scope."""
        return self.stream.scope

    # One record at a time

    def map(self, function: Callable[[Any], Any], name: str | None = None) -> Collection:
        """Each record replaced by `function(record)`.

        Raises:
            GraphError: `function` is no function.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.map(lambda pair: pair[0]).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {1: 2, 2: 1}
        """
        check_callable(function, "map")

        def each(batch: Batch) -> Batch:
            found = [(function(record), by) for record, by in as_pairs(batch)]
            check_result(found[0][0] if found else None)
            return found

        return self._stage("map", name, each)

    def filter(self, predicate: Callable[[Any], Any], name: str | None = None) -> Collection:
        """Records accepted by `predicate(record)`.

        Raises:
            GraphError: `predicate` is no function.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.filter(lambda pair: pair[0] == 2).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(2, 'c'): 1}
        """
        check_callable(predicate, "filter")
        seen = False

        def kept(batch: Batch) -> Batch:
            nonlocal seen
            pairs = as_pairs(batch)
            if seen:
                return [pair for pair in pairs if predicate(pair[0])]
            seen = True
            verdicts = [predicate(record) for record, _ in pairs]
            check_result(verdicts[0] if verdicts else None)
            return list(compress(pairs, verdicts))

        return self._stage("filter", name, kept)

    def flat_map(self, function: Callable[[Any], Iterable[Any]], name: str | None = None) -> Collection:
        """Each record replaced by all results of `function(record)`.

        Raises:
            GraphError: `function` is no function.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.flat_map(lambda pair: [pair[1]] * pair[0]).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {'a': 1, 'b': 1, 'c': 2}
        """
        check_callable(function, "flat_map", many=True)
        return self._stage(
            "flat_map", name, lambda batch: [(made, by) for record, by in as_pairs(batch) for made in function(record)]
        )

    def map_pairs(self, function: Callable[[Any, Any], Any], name: str | None = None) -> Collection:
        """Each pair (key, value) replaced by `function(key, value)`: a pair, or one value.

        It works on single values and on arrays of integers alike; where arrays would wrap round or lose digits it is called
        for each pair, as it is if it gives NotImplemented for arrays.

        Raises:
            GraphError: `function` is no function.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.map_pairs(lambda key, value: (value, key)).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {('a', 1): 1, ('b', 1): 1, ('c', 2): 1}
        """
        check_callable(function, "map_pairs")

        def apply(batch: Batch) -> Batch:
            pairs, columns, _ = split(batch)
            out: list[Any] = [(function(*_pair(record)), by) for record, by in pairs]
            for rows in columns:
                made = made_rows(over_columns(function, *_columns(rows)), rows.diff)
                out += [(function(*_pair(record)), by) for record, by in rows.pairs()] if made is None else made
            return out

        return self._stage("map_pairs", name, apply)

    def filter_pairs(self, predicate: Callable[[Any, Any], Any], name: str | None = None) -> Collection:
        """Pairs (key, value) accepted by `predicate(key, value)`.

        It works on single values and on arrays of integers alike.

        Raises:
            GraphError: `predicate` is no function.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 3), (1, 4), (2, 5)])))
        >>> seen = pairs.filter_pairs(lambda key, value: key + value > 4).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(1, 4): 1, (2, 5): 1}
        """
        check_callable(predicate, "filter_pairs")

        def apply(batch: Batch) -> Batch:
            pairs, columns, _ = split(batch)
            out: list[Any] = [each for each in pairs if predicate(*_pair(each[0]))]
            for rows in columns:
                stay = np.broadcast_to(_over(predicate, rows), len(rows)).astype(np.bool_)
                if stay.any():
                    out.append(Rows(rows.key[stay], rows.value[stay], rows.diff[stay]))
            return out

        return self._stage("filter_pairs", name, apply)

    def as_keys(self, name: str | None = None) -> Collection:
        """Each record as a key without a value; a pair becomes (record, None).

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> visits = differential.from_records(flow.source("visits", falkirk.Iterable([((0, 1), "ada"), ((2, 2), "bob")])))
        >>> squares = differential.from_records(flow.source("squares", falkirk.Iterable([(0, 1)])))
        >>> seen = visits.semijoin(squares.as_keys()).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {((0, 1), 'ada'): 1}
        """

        def apply(batch: Batch) -> Batch:
            pairs, columns, _ = split(batch)
            out: list[Any] = [(as_key(record), by) for record, by in pairs]
            for rows in columns:
                without_match = not len(rows) or rows.value[0] == NOTHING
                out += [rows] if without_match else [(as_key(record), by) for record, by in rows.pairs()]
            return out

        return self._stage("as_keys", name, apply)

    def negate(self, name: str | None = None) -> Collection:
        """Same records with negated multiplicities.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.concat(pairs.negate()).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {}
        """

        def apply(batch: Batch) -> Batch:
            pairs, columns, _ = split(batch)
            out: list[Any] = [(record, -by) for record, by in pairs]
            out += [Rows(rows.key, rows.value, -rows.diff) for rows in columns]
            return out

        return self._stage("negate", name, apply)

    # Several collections

    def concat(self, *others: Collection) -> Collection:
        """Multiset sum of this collection and `others`.

        Collections of outer scopes enter the innermost scope among them.

        Raises:
            GraphError: one of `others` is no collection, or in a scope beside this one.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.concat(pairs).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(1, 'a'): 2, (1, 'b'): 2, (2, 'c'): 2}
        """
        collections = _together(self, *others)
        return Collection(collections[0].stream.concat(*(each.stream for each in collections[1:])))

    def minus(self, other: Collection) -> Collection:
        """Difference of two collections: multiplicities of `other` are subtracted.

        Raises:
            GraphError: `other` is no collection, or in a scope beside this one.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.minus(pairs.filter(lambda pair: pair[0] == 1)).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(2, 'c'): 1}
        """
        return self.concat(other.negate())

    def join(
        self,
        other: Collection,
        select: Callable[[Any, Any, Any], Any] | None = None,
        columns: bool = False,
        name: str | None = None,
    ) -> Collection:
        """Join on equal keys: `select(key, left, right)`, by default (key, (left, right)).

        `columns` says that `select` works on arrays of integers as well as on single values; it then gives a pair or one value,
        or NotImplemented for arrays that it would rather have value by value.

        Raises:
            GraphError: `other` is no collection, or in a scope beside this one; `select` is no function.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> names = differential.from_records(flow.source("names", falkirk.Iterable([(1, 'one'), (3, 'three')])))
        >>> seen = pairs.join(names).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(1, ('a', 'one')): 1, (1, ('b', 'one')): 1}
        """
        if select is not None:
            check_callable(select, "join")
        return self._join(other, select or _both, columns, name)

    def _join(
        self,
        other: Collection,
        select: Callable[[Any, Any, Any], Any],
        columns: bool,
        name: str | None,
        nothing: Any = None,
    ) -> Collection:
        left, right = _together(self, other)
        chosen_name = name or self.stream.graph.fresh_name("join")
        readings = [reading_at(each, f"{chosen_name}/{port}") for port, each in enumerate((left, right))]
        made = left.stream.binary(
            right.stream,
            chosen_name,
            partial(Join, select, columns, readings, nothing),
            *(BY_KEY if reading is None else PIPELINE for reading in readings),
            kind="join",
        )
        return reading_of(made, zip(readings, (left, right), strict=True))

    def semijoin(self, keys: Collection, name: str | None = None) -> Collection:
        """Records with a key in `keys`, times the multiplicity of the key there.

        Give it `distinct()` keys.

        A key that is a pair itself is given as the pair (key, None): see `as_keys`.

        Raises:
            GraphError: `keys` is no collection, or in a scope beside this one.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> keys = differential.from_records(flow.source("keys", falkirk.Iterable([1])))
        >>> seen = pairs.semijoin(keys).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(1, 'a'): 1, (1, 'b'): 1}
        """
        return self._join(keys.map_pairs(_key_only), _left, columns=True, name=name, nothing=ABSENT)

    def antijoin(self, keys: Collection, name: str | None = None) -> Collection:
        """Records with a key not in `keys`, which are distinct keys.

        A key that is a pair itself is given as the pair (key, None).

        Raises:
            GraphError: `keys` is no collection, or in a scope beside this one.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> keys = differential.from_records(flow.source("keys", falkirk.Iterable([1])))
        >>> seen = pairs.antijoin(keys).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(2, 'c'): 1}
        """
        return self.minus(self.semijoin(keys, name))

    def left_join(
        self, other: Collection, select: Callable[[Any, Any, Any], Any] | None = None, name: str | None = None
    ) -> Collection:
        """Left outer join: `join`, and `select(key, left, None)` for unmatched records.

        Raises:
            GraphError: `other` is no collection, or in a scope beside this one; `select` is no function.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> names = differential.from_records(flow.source("names", falkirk.Iterable([(1, 'one'), (3, 'three')])))
        >>> seen = pairs.left_join(names).capture("out")
        >>> sorted(differential.snapshot(falkirk.run(flow).captured("out")), key=str)
        [(1, ('a', 'one')), (1, ('b', 'one')), (2, ('c', None))]
        """
        return self.join(other, select, name=name).concat(self._without_match(other, select or _both))

    def full_join(
        self, other: Collection, select: Callable[[Any, Any, Any], Any] | None = None, name: str | None = None
    ) -> Collection:
        """Full outer join: `left_join`, and `select(key, None, right)` for the unmatched.

        Raises:
            GraphError: `other` is no collection, or in a scope beside this one; `select` is no function.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> names = differential.from_records(flow.source("names", falkirk.Iterable([(1, 'one'), (3, 'three')])))
        >>> seen = pairs.full_join(names).capture("out")
        >>> sorted(differential.snapshot(falkirk.run(flow).captured("out")), key=str)
        [(1, ('a', 'one')), (1, ('b', 'one')), (2, ('c', None)), (3, (None, 'three'))]
        """
        chosen = select or _both
        turned = other._without_match(self, lambda key, right, left: chosen(key, left, right))
        return self.left_join(other, select, name).concat(turned)

    def _without_match(self, other: Collection, select: Callable[[Any, Any, Any], Any]) -> Collection:
        without_match = self.antijoin(other.map_pairs(_key_only).distinct())
        return without_match.map(lambda record: select(*_pair(record), None))

    # Keyed verbs

    def reduce(self, function: Callable[[Any, Group], Iterable[Any]], name: str | None = None) -> Collection:
        """Results of `function(key, group)` for each key, as pairs (key, value).

        The group lists the key's values, and how often each is there.

        Raises:
            GraphError: `function` is no function.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.reduce(lambda key, group: [max(value for value, _ in group)]).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(1, 'b'): 1, (2, 'c'): 1}
        """
        check_callable(function, "reduce", many=True)
        return self._reduce("reduce", partial(reducers.Function, function), name)

    def distinct(self, name: str | None = None) -> Collection:
        """Each record once.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.map(lambda pair: pair[0]).distinct().capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {1: 1, 2: 1}
        """
        return self._reduce("distinct", reducers.Distinct, name)

    def count(self, name: str | None = None) -> Collection:
        """Pairs of a key and the number of its records.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.map(lambda pair: pair[0]).count().capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(1, 2): 1, (2, 1): 1}
        """
        return self._reduce("count", reducers.Count, name, linear=True)

    def sum(self, name: str | None = None) -> Collection:
        """Pairs of a key and the sum of its values.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 3), (1, 4), (2, 5)])))
        >>> seen = pairs.sum().capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(1, 7): 1, (2, 5): 1}
        """
        return self._reduce("sum", reducers.Sum, name, linear=True)

    def min(self, name: str | None = None) -> Collection:
        """Pairs of a key and its least value.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.min().capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(1, 'a'): 1, (2, 'c'): 1}
        """
        return self._reduce("min", partial(reducers.Extreme, False), name)

    def max(self, name: str | None = None) -> Collection:
        """Pairs of a key and its greatest value.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.max().capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(1, 'b'): 1, (2, 'c'): 1}
        """
        return self._reduce("max", partial(reducers.Extreme, True), name)

    def top(self, count: int, greatest: bool = True, name: str | None = None) -> Collection:
        """Pairs of a key and each of its `count` greatest values, or least ones.

        Raises:
            GraphError: `count` is no whole number from 1 up.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.top(1).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(1, 'b'): 1, (2, 'c'): 1}
        """
        if not isinstance(count, int) or count < 1:
            raise GraphError(f"{user_site()}: top takes a number of values from 1 up, not {count!r}")
        return self._reduce("top", partial(reducers.Top, count, greatest), name)

    def threshold(self, function: Callable[[int], int], name: str | None = None) -> Collection:
        """Each record with multiplicity `function(n)` in place of n (n may be negative).

        Raises:
            GraphError: `function` is no function.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.map(lambda pair: pair[0]).threshold(lambda n: min(n, 1)).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {1: 1, 2: 1}
        """
        check_callable(function, "threshold")
        return self._reduce("threshold", partial(reducers.Threshold, function), name)

    def arrange(self, name: str | None = None) -> Collection:
        """Same collection with one trace, shared by all keyed operators, in loops as well.

        They read it as long as they are in the region in which it was made, and that is as it is by default, or `Lazy`: in
        others each keeps a trace of its own.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> arranged = pairs.arrange()
        >>> seen = arranged.join(arranged.count(), lambda key, value, count: (value, count)).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {('a', 2): 1, ('b', 2): 1, ('c', 1): 1}
        """
        if self.arrangement is not None:
            return self
        arranged = self._operator("arrange", Arrange, name)
        return Collection(arranged.stream, arranged.stream.outputs[0].node)

    def consolidate(self, name: str | None = None) -> Collection:
        """Same collection with the changes of each time consolidated.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.concat(pairs.negate()).consolidate().capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {}
        """
        return self._operator("consolidate", Consolidate, name)

    # Loops

    def enter(self, scope: Scope) -> Collection:
        """Same collection in a scope inside its own.

        Operators on several collections do this where it is needed.

        Raises:
            GraphError: `scope` is not within that of the collection.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.iterate(lambda inner: inner.concat(pairs.enter(inner.scope)).distinct()).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(1, 'a'): 1, (1, 'b'): 1, (2, 'c'): 1}
        """
        inside = scope.path()
        if self.scope not in inside:
            raise GraphError(f"{user_site()}: {self!r} is in {self.scope}, which is not around {scope}: leave() first")
        stream = self.stream
        for each in inside[inside.index(self.scope) + 1 :]:
            stream = stream.enter(each)
        return Collection(stream, self.arrangement)

    def enter_at(self, scope: Scope, iteration: Callable[[Any, Any], Any]) -> Collection:
        """Same collection in a loop, each record from its `iteration(key, value)` on.

        That must be a function of the record alone, which works on single values and on arrays of integers alike.

        Raises:
            GraphError: `iteration` is no function.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> costs = differential.from_records(flow.source("costs", falkirk.Iterable([("a", 0), ("b", 7)])))
        >>> def least(inner):  # small ones are there first, so that most of what is large is never sent on
        ...     return costs.enter_at(inner.scope, lambda key, cost: cost // 5).concat(inner).min()
        >>> seen = costs.iterate(least).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {('a', 0): 1, ('b', 7): 1}
        """
        check_callable(iteration, "enter_at")

        def part(batch: Batch) -> Batch:
            pairs, columns, _ = split(batch)
            out: list[Any] = list(pairs)
            for rows in columns:
                at = np.broadcast_to(_over(iteration, rows), rows.key.shape)
                for one in np.unique(at).tolist():
                    here = at == one
                    out.append(Rows(rows.key[here], rows.value[here], rows.diff[here]))
            return out

        def first(item: Any) -> int:
            if type(item) is Rows:
                return int(np.ravel(_over(iteration, item))[0])
            return int(iteration(*_pair(item[0])))

        return Collection(self._stage("by_iteration", None, part).stream.enter(scope, first))

    def leave(self) -> Collection:
        """Collection after the last iteration of its loop, in the enclosing scope.

        Raises:
            GraphError: the collection is in the root scope.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> names = differential.from_records(flow.source("names", falkirk.Iterable(["a", "b"])))
        >>> inside = names.enter(flow.scope("loop")).map(str.upper)
        >>> seen = inside.leave().capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {'A': 1, 'B': 1}
        """
        return Collection(self.stream.leave())

    def iterate(
        self, body: Callable[[Collection], Collection], limit: int = LIMIT, name: str | None = None
    ) -> Collection:
        """Fixed point of `body`, iterated from this collection.

        Raises:
            GraphError: `body` is no function, or returns what it did not make of its argument; `limit` is below 1.
            OperatorError: when it runs, if something still changes after `limit` iterations.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> numbers = differential.from_records(flow.source("numbers", falkirk.Iterable([7, 9])))
        >>> seen = numbers.iterate(lambda inner: inner.map(lambda n: max(n - 3, 0))).capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {0: 2}
        """
        (result,) = iterate([self], lambda inner: [body(inner)], limit, name)
        return result

    # Outputs

    def changes(self, name: str | None = None) -> Stream:
        """Stream of the changes, (record, difference), consolidated at each time.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> words = differential.from_records(flow.source("words", falkirk.Iterable(["a", "a"], epoch_every=1)))
        >>> seen = words.count().changes().capture("out")
        >>> [(epoch, sorted(batch)) for (epoch,), batch in falkirk.run(flow).captured("out")]
        [(0, [(('a', 1), 1)]), (1, [(('a', 1), -1), (('a', 2), 1)])]
        """
        return self.consolidate().stream._stage("changes", name, as_pairs, repeats_over="record")

    def capture(self, name: str | None = None) -> Capture:
        """Capture the changes for the caller of the dataflow: see `snapshot`.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> pairs = differential.from_records(flow.source("pairs", falkirk.Iterable([(1, 'a'), (1, 'b'), (2, 'c')])))
        >>> seen = pairs.capture("out")
        >>> differential.snapshot(falkirk.run(flow).captured("out"))
        {(1, 'a'): 1, (1, 'b'): 1, (2, 'c'): 1}
        """
        return self.changes().capture(name)

    def probe(self, name: str | None = None) -> Probe:
        """Watch the progress of the collection."""
        return self.stream.probe(name)

    def to(self, sink: Sink, name: str | None = None, require: str | None = None) -> None:
        """Write the changes, pairs (record, difference), to `sink`.

        `require` as for streams: the guarantee demanded of the sink.

        Raises:
            GraphError: `sink` is none, or the collection is in a nested scope.

        >>> from falkirk import differential
        >>> flow = falkirk.Dataflow()
        >>> words = differential.from_records(flow.source("words", falkirk.Iterable(["a", "a"])))
        >>> words.count().to(falkirk.Console())
        >>> result = falkirk.run(flow)
        0: (('a', 2), 1)
        """
        self.changes().to(sink, name, require)

    # Parts

    def _stage(self, kind: str, name: str | None, apply: Callable[[Any], Batch]) -> Collection:
        return Collection(self.stream._stage(kind, name, apply, repeats_over="record"))

    def _operator(self, kind: str, factory: Callable[[], Any], name: str | None) -> Collection:
        chosen = name or self.stream.graph.fresh_name(kind)
        return Collection(self.stream.unary(chosen, factory, BY_KEY, kind=kind))

    def _reduce(self, kind: str, reducer: Callable[[], Reducer], name: str | None, linear: bool = False) -> Collection:
        chosen = name or self.stream.graph.fresh_name(kind)
        reading = None if linear else reading_at(self, chosen)  # what values weigh is less than they are
        channel = BY_KEY if reading is None else PIPELINE
        made = self.stream.unary(chosen, lambda: Reduce(reducer(), reading), channel, kind=kind)
        return reading_of(made, [(reading, self)])


def reading_at(collection: Collection, name: str) -> TraceReading | None:
    """Access of a new operator to the collection's shared trace, or None.

    None: the operator keeps a trace of its own.
    """
    graph = collection.stream.graph
    if collection.arrangement is None:
        return None
    node, region = graph.nodes[collection.arrangement], graph.region
    if node.region is not region or not (region is None or as_policy(region.policy).shares_state):
        return None
    return TraceReading(name, node.scope.depth, collection.scope.depth)


def reading_of(made: Stream, readings: Iterable[tuple[TraceReading | None, Collection]]) -> Collection:
    """Output collection of an operator with shared traces of some inputs."""
    nodes = [each.arrangement for reading, each in readings if reading is not None]
    if nodes:
        made._change("reads", reads=tuple(nodes))
    return Collection(made)


def iterate(
    initial: Sequence[Collection],
    body: Callable[..., Sequence[Collection]],
    limit: int = LIMIT,
    name: str | None = None,
) -> list[Collection]:
    """Joint fixed point of several collections in one loop.

    `body` is called with one collection for each initial one, and returns as many.

    Raises:
        GraphError: `body` is no function, or does not return as many collections, made of its arguments; `limit` is below
            1.

    >>> from falkirk import differential
    >>> flow = falkirk.Dataflow()
    >>> pairs = differential.from_records(flow.source("numbers", falkirk.Iterable([(1, 9)])))
    >>> once = differential.from_records(flow.source("once", falkirk.Iterable([(1, 3)])))
    >>> def fall(values, least):
    ...     lower = values.map_pairs(lambda key, n: (key, n - 1)).concat(least).max()
    ...     return [lower, least]
    >>> falling, _ = differential.iterate([pairs, once], fall, limit=50)
    >>> seen = falling.capture("out")
    >>> differential.snapshot(falkirk.run(flow).captured("out"))
    {(1, 3): 1}
    """
    check_callable(body, "iterate")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise GraphError(f"{user_site()}: a loop's limit is a number of iterations from 1 up, not {limit!r}")
    outer = _together(*initial)
    graph = outer[0].stream.graph
    scope = graph.add_scope(name, outer[0].scope)
    begun = [each.enter(scope) for each in outer]
    loops = [feedback(scope, graph, f"{scope.name}-feedback-{n}") for n in range(len(begun))]
    found = body(*(each.concat(back) for each, (_, back) in zip(begun, loops, strict=True)))
    if len(found) != len(begun) or not all(isinstance(each, Collection) and each.scope is scope for each in found):
        raise GraphError(
            f"{user_site()}: the body of iterate() must return as many collections as it was given, {len(begun)}, each made "
            "from its arguments"
        )
    for start, result, (close, _) in zip(begun, found, loops, strict=True):
        close(result.minus(start), limit)
    return [each.leave() for each in found]


def grow(
    body: Callable[[Collection], Collection], beside: Collection, limit: int = LIMIT, name: str | None = None
) -> Collection:
    """Fixed point of `body`, iterated from the empty collection.

    The loop is in the scope of `beside`. It costs less than `iterate` where the body adds what there is to begin with.

    Raises:
        GraphError: `body` returns what is not in the loop.

    >>> from falkirk import differential
    >>> flow = falkirk.Dataflow()
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable([(1, 2), (2, 3)])))
    >>> def longer(paths):
    ...     ahead = edges.enter(paths.scope)
    ...     backwards = paths.map_pairs(lambda a, b: (b, a))
    ...     return backwards.join(ahead, lambda _, a, c: (a, c)).concat(ahead).distinct()
    >>> seen = differential.grow(longer, beside=edges).capture("out")
    >>> sorted(differential.snapshot(falkirk.run(flow).captured("out")))
    [(1, 2), (1, 3), (2, 3)]
    """
    graph = beside.stream.graph
    scope = graph.add_scope(name, beside.scope)
    close, known = feedback(scope, graph, f"{scope.name}-feedback")
    found = body(known)
    close(found, limit)
    return found.leave()


def feedback(scope: Scope, graph: Graph, name: str) -> tuple[Callable[[Collection, int], None], Collection]:
    """Feedback edge in `scope`: a function to close the loop, and its collection.

    The function is called once, with the collection to feed back and a limit of iterations.
    """
    node = add_feedback(graph, scope, None, name)
    back = Collection(Stream(graph, scope, (Output(node.index),)))

    def close(again: Collection, limit: int) -> None:
        checked = again._operator("consolidate", lambda: Consolidate(scope.name, limit), f"{name}-consolidate")
        checked.stream.connect_loop(Loop(graph, node.index))

    return close, back


def from_records(stream: Stream, name: str | None = None) -> Collection:
    """Collection of the records of `stream`, each inserted once.

    >>> from falkirk import differential
    >>> flow = falkirk.Dataflow()
    >>> words = differential.from_records(flow.source("words", falkirk.Iterable(["a", "b", "a"])))
    >>> seen = words.capture("out")
    >>> differential.snapshot(falkirk.run(flow).captured("out"))
    {'a': 2, 'b': 1}
    """
    return Collection(
        stream._stage("inserted", name, lambda batch: [(record, 1) for record in batch], repeats_over="record")
    )


def from_changes(stream: Stream) -> Collection:
    """Collection of the changes in `stream`: pairs (record, difference).

    `Input` sends such pairs, and `changes` gives them.

    >>> from falkirk import differential
    >>> flow = falkirk.Dataflow()
    >>> changes = flow.source("changes", falkirk.Iterable([("a", 1), ("b", 1), ("a", -1)], epoch_every=2))
    >>> seen = differential.from_changes(changes).capture("out")
    >>> differential.snapshot(falkirk.run(flow).captured("out"))
    {'b': 1}
    """
    return Collection(stream)


def from_columns(stream: Any, key: str, value: str | None = None, diff: str | None = None) -> Collection:
    """Collection of integers, or of pairs of integers, from columns of a stream.

    Raises:
        GraphError: `stream` is no stream of columns; a column is not there, or is none of integers, where the schema is known.

    >>> import polars as pl
    >>> from falkirk import differential
    >>> flow = falkirk.Dataflow()
    >>> sales = flow.columns("sales", falkirk.Batches([pl.DataFrame({"shop": [1, 2, 1], "price": [3, 4, 5]})]))
    >>> seen = differential.from_columns(sales, "shop", "price").sum().capture("out")
    >>> differential.snapshot(falkirk.run(flow).captured("out"))
    {(1, 8): 1, (2, 4): 1}
    """

    _check_integers(stream, [each for each in (key, value, diff) if each is not None])

    def apply(batch: Batch) -> Batch:
        def column(name: str) -> Any:
            return batch[name].to_numpy()  # type: ignore[call-overload]

        return [rows_of(column(key), value and column(value), 1 if diff is None else column(diff))]

    staged = stream._stage("from_columns", None, apply, repeats_over="record")
    return Collection(Stream(staged.graph, staged.scope, staged.outputs))


def _check_integers(stream: Any, names: Sequence[str]) -> None:
    if not isinstance(stream, Columns):
        raise GraphError(
            f"{user_site()}: from_columns takes a stream of columns, not {type(stream).__name__}: of records it is from_records"
        )
    for name in names:
        if not isinstance(name, str):
            raise GraphError(f"{user_site()}: from_columns takes names of columns, not {name!r}")
        if (schema := stream.schema) is None:
            continue
        if name not in schema:
            raise GraphError(
                f"{user_site()}: from_columns: no column {name!r}; there are {', '.join(map(repr, schema))}"
            )
        if not (schema[name].is_integer() or schema[name] == pl.Boolean):
            raise GraphError(
                f"{user_site()}: from_columns: column {name!r} is of {schema[name]}, and a collection takes columns of "
                "integers: from_records(stream.to_records()) takes anything"
            )


def _together(*collections: Collection) -> list[Collection]:
    """Collections brought into the innermost of their scopes."""
    for each in collections:
        if not isinstance(each, Collection):
            raise GraphError(f"{user_site()}: a collection is wanted here, not {type(each).__name__}")
    innermost = max((each.scope for each in collections), key=lambda scope: scope.depth)
    return [each.enter(innermost) for each in collections]


def _columns(rows: Rows) -> tuple[Any, Any]:
    return rows.key, None if rows.value[0] == NOTHING else rows.value


def _over(function: Callable[[Any, Any], Any], rows: Rows) -> Any:
    """Result of a function for each row: by columns, or by row if they would overflow."""
    found = over_columns(function, *_columns(rows))
    if found is NotImplemented:
        return np.array([function(*_pair(record)) for record, _ in rows.pairs()])
    return found


def _pair(record: Any) -> tuple[Any, Any]:
    return record if of_key(record)[1] else (record, None)


def _both(key: Any, left: Any, right: Any) -> Any:
    return key, (left, right)


def _left(key: Any, left: Any, right: Any) -> Any:
    return key if left is ABSENT else (key, left)


def _key_only(key: Any, value: Any) -> Any:
    return as_key(key)
