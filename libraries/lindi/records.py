"""Queries over records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from heapq import nlargest, nsmallest
from operator import itemgetter
from typing import Any

import numpy as np

from libraries.columns.verbs.columns import Stream
from libraries.lindi.query import Base
from timely.data.batch import Batch
from timely.data.content import by_content, in_order
from timely.data.keys import are_canonical, canonical
from timely.data.representatives import represent_all
from timely.data.sums.records import lowered, lowered_all, total_of
from timely.dataflow.stream import records_of
from timely.dataflow.wire import check_callable, check_combine
from timely.errors import GraphError, user_site
from timely.operators.channels import Exchange
from timely.operators.keyed import combine_known, greatest, grouped, least

Key = Callable[[Any], Any]


def _itself(record: Any) -> Any:
    return record


def _one_place(record: Any) -> int:
    return 0


def _by(key: Key, combine: Callable[[Batch], Batch] | None = None) -> Exchange:
    return Exchange(key=key, prepare=records_of, combine=combine)


class Query(Base[Stream]):
    """Query over records: each verb takes the records of one time.

    Within a time records have no order.
    """

    def where(self, predicate: Callable[[Any], Any], name: str | None = None) -> Query:
        """Filter records by `predicate(record)`.

        Raises:
            GraphError: `predicate` is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([1, 2, 3])))
        >>> seen = items.where(lambda n: n > 1).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [2, 3])]
        """
        return Query(self.stream.filter(predicate, name))

    def select(self, function: Callable[[Any], Any], name: str | None = None) -> Query:
        """Each record replaced by `function(record)`.

        Raises:
            GraphError: `function` is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([1, 2])))
        >>> seen = items.select(lambda n: n + 1).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [2, 3])]
        """
        return Query(self.stream.map(function, name))

    def select_many(self, function: Callable[[Any], Iterable[Any]], name: str | None = None) -> Query:
        """Each record replaced by the items of `function(record)`.

        Raises:
            GraphError: `function` is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable(["to be"])))
        >>> seen = items.select_many(str.split).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), ['to', 'be'])]
        """
        return Query(self.stream.flat_map(function, name))

    def group_by(self, key: Key) -> Groups:
        """Group records by `key(record)`; the verbs of `Groups` then reduce each group.

        Raises:
            GraphError: `key` is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable(["a", "bc", "d"])))
        >>> seen = items.group_by(len).select(lambda n, words: (n, sorted(words))).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [(1, ['a', 'd']), (2, ['bc'])])]
        """
        check_callable(key, "group_by")
        return Groups(self, key)

    def distinct(self, name: str | None = None) -> Query:
        """Each record once.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([1, 2, 1], epoch_every=2)))
        >>> seen = items.distinct().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [1, 2]), ((1,), [1])]
        """
        return self._each_time("distinct", name, _by(_itself, _unique), _unique)

    def union(self, other: Query, name: str | None = None) -> Query:
        """Each record of this query or of `other` once.

        Raises:
            GraphError: `other` is no query of the same kind, dataflow and scope.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> mine = lindi.Query(flow.source("mine", falkirk.Iterable([1, 2])))
        >>> theirs = lindi.Query(flow.source("theirs", falkirk.Iterable([2, 3])))
        >>> seen = mine.union(theirs).capture("out")
        >>> sorted(record for _, batch in falkirk.run(flow).captured("out") for record in batch)
        [1, 2, 3]
        """
        return self.concat(other).distinct(name)

    def intersect(self, other: Query, name: str | None = None) -> Query:
        """Records of this query also given by `other`, each once.

        Raises:
            GraphError: `other` is no query of the same kind, dataflow and scope.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> mine = lindi.Query(flow.source("mine", falkirk.Iterable([1, 2])))
        >>> theirs = lindi.Query(flow.source("theirs", falkirk.Iterable([2, 3])))
        >>> seen = mine.intersect(theirs).capture("out")
        >>> sorted(record for _, batch in falkirk.run(flow).captured("out") for record in batch)
        [2]
        """
        return self._both("intersect", name, other, (_by(_itself), _by(_itself)), _common)

    def without(self, other: Query, name: str | None = None) -> Query:
        """Records of this query not given by `other`, each once.

        Raises:
            GraphError: `other` is no query of the same kind, dataflow and scope.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> mine = lindi.Query(flow.source("mine", falkirk.Iterable([1, 2])))
        >>> theirs = lindi.Query(flow.source("theirs", falkirk.Iterable([2, 3])))
        >>> seen = mine.without(theirs).capture("out")
        >>> sorted(record for _, batch in falkirk.run(flow).captured("out") for record in batch)
        [1]
        """
        return self._both("without", name, other, (_by(_itself), _by(_itself)), _left_over)

    def join(
        self,
        other: Query,
        key: Key,
        other_key: Key,
        select: Callable[[Any, Any], Any] | None = None,
        name: str | None = None,
    ) -> Query:
        """`select(mine, theirs)` of all pairs with equal keys; default: the pairs.

        Raises:
            GraphError: `other` is no query of the same kind, dataflow and scope, or what takes records is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> mine = lindi.Query(flow.source("mine", falkirk.Iterable([1, 2])))
        >>> theirs = lindi.Query(flow.source("theirs", falkirk.Iterable([2, 3])))
        >>> seen = mine.join(theirs, lambda n: n % 2, lambda n: n % 2).capture("out")
        >>> sorted(record for _, batch in falkirk.run(flow).captured("out") for record in batch)
        [(1, 3), (2, 2)]
        """
        for function in (key, other_key, *([select] if select else [])):
            check_callable(function, "join")

        def meet(left: list[Any] | None, right: list[Any] | None) -> Batch:
            theirs = grouped([[(other_key(record), record) for record in right or ()]])
            mine = grouped([[(key(record), record) for record in left or ()]])
            pairs = ((a, b) for found, many in mine.items() if found in theirs for a in many for b in theirs[found])
            return [select(a, b) for a, b in pairs] if select else list(pairs)

        return self._both("join", name, other, (_by(key), _by(other_key)), meet)

    def order_by(self, key: Key = _itself, descending: bool = False, name: str | None = None) -> Query:
        """Records sorted by `key(record)`, at one worker, as one batch a time.

        Ties are in an order by their content.

        Raises:
            GraphError: `key` is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([2, 3, 1])))
        >>> seen = items.order_by(descending=True).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [3, 2, 1])]
        """
        check_callable(key, "order_by")

        def ordered(batch: Batch) -> Batch:
            records = records_of(batch)
            return _ordered(_ranked(key, records, not descending), descending, records)

        return self._each_time("order_by", name, _by(_one_place), ordered)

    def top(self, count: int, key: Key = _itself, least: bool = False, name: str | None = None) -> Query:
        """The `count` records with the greatest (or least) `key(record)`, in order.

        Ties as in `order_by`.

        Raises:
            GraphError: `count` is no whole number from 1 up, or `key` no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([2, 3, 1])))
        >>> seen = items.top(2).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [3, 2])]
        """
        check_callable(key, "top")
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise GraphError(f"{user_site()}: top takes a number of records from 1 up, not {count!r}")

        def choose(batch: Batch) -> Batch:
            records = records_of(batch)
            return _first(count, _ranked(key, records, least), not least, records)

        return self._each_time("top", name, _by(_one_place, choose), choose)

    def count(self, name: str | None = None) -> Query:
        """Number of records at each time; no output for a time without records.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([2, 3, 1])))
        >>> seen = items.count().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [3])]
        """
        ones = self.select(lambda record: 1)
        return ones.sum(name)

    def sum(self, name: str | None = None) -> Query:
        """The sum of the records; of floats the exact sum, rounded once.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([2, 3, 1])))
        >>> seen = items.sum().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [6])]
        """

        def early(batch: Batch) -> Batch:
            return [total_of(records_of(batch))]

        return self._each_time("aggregate", name, _by(_one_place, early), lambda batch: lowered_all(early(batch)))

    def min(self, key: Key = _itself, name: str | None = None) -> Query:
        """A record with the least `key(record)`.

        Raises:
            GraphError: `key` is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable(["abc", "b"])))
        >>> seen = items.min(len).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), ['b'])]
        """
        return self.top(1, key, least=True, name=name)

    def max(self, key: Key = _itself, name: str | None = None) -> Query:
        """A record with the greatest `key(record)`.

        Raises:
            GraphError: `key` is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable(["abc", "b"])))
        >>> seen = items.max(len).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), ['abc'])]
        """
        return self.top(1, key, name=name)

    def aggregate(
        self, combine: Callable[[Any, Any], Any], name: str | None = None, *, any_order: bool = False
    ) -> Query:
        """One record of all, by `combine(a, b)`, in an order by their content.

        `any_order` declares that `combine` gives the same in whatever order and grouping (`Keyed.reduce`).

        Raises:
            GraphError: `combine` is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([2, 3, 4])))
        >>> seen = items.aggregate(lambda a, b: a * b).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [24])]
        """
        check_combine(combine, "aggregate")
        known = combine_known(combine, any_order)

        def early(batch: Batch) -> Batch:
            return [reduce(known or combine, records_of(batch))]

        def whole(batch: Batch) -> Batch:
            if known is None:
                batch = by_content(records_of(batch))
            return lowered_all(early(batch))

        return self._each_time("aggregate", name, _by(_one_place, None if known is None else early), whole)


@dataclass(frozen=True, slots=True)
class Groups:
    """Records grouped by key; each verb gives pairs of key and result."""

    query: Query
    key: Key

    def select(self, function: Callable[[Any, list[Any]], Any], name: str | None = None) -> Query:
        """`function(key, records)` of each group, its records ordered by content.

        Raises:
            GraphError: `function` is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])))
        >>> seen = items.group_by(lambda pair: pair[0]).select(lambda name, pairs: (name, len(pairs))).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 2), ('b', 1)])]
        """
        check_callable(function, "select")
        return self._of_groups("group_by", lambda key, records: function(key, records), name)

    def count(self, name: str | None = None) -> Query:
        """The number of records.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])))
        >>> seen = items.group_by(lambda pair: pair[0]).count().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 2), ('b', 1)])]
        """
        return self.sum(lambda record: 1, name)

    def sum(self, of: Key = _itself, name: str | None = None) -> Query:
        """The sum of `of(record)`; of floats the exact sum, rounded once.

        Raises:
            GraphError: `of` is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])))
        >>> seen = items.group_by(lambda pair: pair[0]).sum(lambda pair: pair[1]).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 7), ('b', 5)])]
        """
        check_callable(of, "sum")
        key = self.key
        pairs = self.query.select(lambda record: (key(record), of(record)))

        def early(batch: Batch) -> Batch:
            return [(key, total_of(values)) for key, values in grouped([records_of(batch)]).items()]

        def whole(batch: Batch) -> Batch:
            return [(key, lowered(total)) for key, total in early(batch)]

        return pairs._each_time("aggregate", name, Exchange(prepare=records_of, combine=early), whole)

    def min(self, of: Key = _itself, name: str | None = None) -> Query:
        """The least `of(record)`.

        Raises:
            GraphError: `of` is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])))
        >>> seen = items.group_by(lambda pair: pair[0]).min(lambda pair: pair[1]).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 3), ('b', 5)])]
        """
        return self.aggregate(of, least, name, any_order=True)

    def max(self, of: Key = _itself, name: str | None = None) -> Query:
        """The greatest `of(record)`.

        Raises:
            GraphError: `of` is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])))
        >>> seen = items.group_by(lambda pair: pair[0]).max(lambda pair: pair[1]).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 4), ('b', 5)])]
        """
        return self.aggregate(of, greatest, name, any_order=True)

    def aggregate(
        self, of: Key, combine: Callable[[Any, Any], Any], name: str | None = None, *, any_order: bool = False
    ) -> Query:
        """One value of all `of(record)`, by `combine(a, b)`, in an order by their content.

        `any_order` declares that `combine` gives the same in whatever order and grouping (`Keyed.reduce`).

        Raises:
            GraphError: `of` or `combine` is no function.

        >>> from falkirk import lindi
        >>> flow = falkirk.Dataflow()
        >>> items = lindi.Query(flow.source("items", falkirk.Iterable([("a", 3), ("b", 5), ("a", 4)])))
        >>> seen = items.group_by(lambda pair: pair[0]).aggregate(lambda pair: pair[1], lambda a, b: a * b).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 12), ('b', 5)])]
        """
        check_callable(of, "aggregate")
        check_combine(combine, "aggregate")
        key = self.key
        pairs = self.query.select(lambda record: (key(record), of(record)))

        known = combine_known(combine, any_order)

        def early(batch: Batch) -> Batch:
            return [(key, reduce(known or combine, values)) for key, values in grouped([records_of(batch)]).items()]

        def whole(batch: Batch) -> Batch:
            if known is not None:
                return [(key, lowered(total)) for key, total in early(batch)]
            groups = grouped([records_of(batch)])
            return [(key, reduce(combine, by_content(values))) for key, values in groups.items()]

        channel = Exchange(prepare=records_of, combine=None if known is None else early)
        return pairs._each_time("aggregate", name, channel, whole)

    def _of_groups(self, kind: str, function: Callable[[Any, list[Any]], Any], name: str | None) -> Query:
        key = self.key

        def groups(batch: Batch) -> Batch:
            pairs = [(key(record), record) for record in records_of(batch)]
            return [function(found, by_content(records)) for found, records in grouped([pairs]).items()]

        return self.query._each_time(kind, name, _by(key), groups)


def _ordered(key: Key, descending: bool, records: list[Any]) -> list[Any]:
    items = in_order([(key(record), record) for record in records])
    if descending:
        items.sort(key=itemgetter(0), reverse=True)  # those with equal keys stay as they are
    return [record for _, record in items]


def _first(count: int, key: Key, descending: bool, records: list[Any]) -> list[Any]:
    """The first `count` records in order; ties are chosen by content."""
    if len(records) > count:
        keys = [key(record) for record in records]
        last = (nlargest if descending else nsmallest)(count, keys)[-1]
        records = [record for at, record in zip(keys, records) if not (at < last if descending else last < at)]
    return _ordered(key, descending, records)[:count]


def _each_once(records: Iterable[Any]) -> dict[Any, None]:
    """Distinct records as keys; NaN is one key, from any worker."""
    found: dict[Any, None] = dict.fromkeys(represent_all(list(records)))
    return found if are_canonical(found) else dict.fromkeys(map(canonical, found))


def _unique(batch: Batch) -> Batch:
    return list(_each_once(records_of(batch)))


def _common(left: list[Any] | None, right: list[Any] | None) -> Batch:
    theirs = _each_once(right or ())
    return [record for record in _each_once(left or ()) if record in theirs]


def _left_over(left: list[Any] | None, right: list[Any] | None) -> Batch:
    theirs = _each_once(right or ())
    return [record for record in _each_once(left or ()) if record not in theirs]


def _ranked(key: Key, records: list[Any], least: bool) -> Key:
    """Sort key with NaN last; `key` itself if there is no NaN.

    It is the greatest where the `least` come first, and else the least.
    """
    if are_canonical([key(record) for record in records]):
        return key
    return lambda record: _rank(key(record), least)


def _rank(value: Any, least: bool) -> Any:
    if isinstance(value, int | float | Decimal | np.number):
        nan = bool(value != value)
        return nan is least, 0 if nan else value
    return tuple(_rank(each, least) for each in value) if isinstance(value, tuple) else value
