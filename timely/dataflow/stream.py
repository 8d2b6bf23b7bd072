"""Streams of records: verbs with Python functions of one record.

They are the convenient way, not the fast one: `Columns` has the same verbs over whole columns. Where a batch of columns
reaches a function of records, each row is a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any, Self

from timely.data.batch import Batch, as_polars
from timely.dataflow.keyed import Keyed, Over, check_over
from timely.dataflow.wire import Wire, check_callable
from timely.operators.channels import Exchange
from timely.operators.keyed import Distinct
from timely.operators.shaping import AttemptOperator, Branch, check_result


def records_of(batch: Batch) -> list[Any]:
    """The batch as a list of records: rows of columns become dicts."""
    if isinstance(batch, list):
        return batch
    return as_polars(batch).to_dicts()


class Stream(Wire):
    """A stream of records: each batch is a list of anything."""

    def map(self, function: Callable[[Any], Any], name: str | None = None) -> Self:
        """Replace every record by `function(record)`.

        Raises:
            GraphError: `function` is no function.

        >>> flow = falkirk.Dataflow()
        >>> items = flow.source("items", falkirk.Iterable([1, 2, 3]))
        >>> result = items.map(lambda n: n * n).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [1, 4, 9])]
        """
        check_callable(function, "map")

        def each(batch: Batch) -> Batch:
            found = [function(x) for x in records_of(batch)]
            check_result(found[0] if found else None)
            return found

        return self._stage("map", name, each, function, repeats_over="record")

    def attempt(self, function: Callable[[Any], Any], name: str | None = None) -> tuple[Self, Self]:
        """Like `map`, but with failed records as dead letters, instead of a failed job.

        Two streams: the results, and the dead letters: pairs (record, error text), at the time of the record.

        Raises:
            GraphError: `function` is no function.

        >>> flow = falkirk.Dataflow()
        >>> numbers, dead_letters = flow.source("lines", falkirk.Iterable(["1", "one"])).attempt(int)
        >>> good, bad = numbers.capture("good"), dead_letters.capture("bad")
        >>> falkirk.run(flow).captured("bad")
        [((0,), [('one', "ValueError: invalid literal for int() with base 10: 'one'")])]
        """
        check_callable(function, "attempt")
        node = self._attach("attempt", name, factory=lambda: AttemptOperator(function, records_of), outputs=2)
        return self._of(node, 0), self._of(node, 1)

    def filter(self, predicate: Callable[[Any], Any], name: str | None = None) -> Self:
        """Keep the records with a true `predicate(record)`.

        Raises:
            GraphError: `predicate` is no function.

        >>> flow = falkirk.Dataflow()
        >>> items = flow.source("items", falkirk.Iterable([1, 2, 3]))
        >>> result = items.filter(lambda n: n > 1).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [2, 3])]
        """
        check_callable(predicate, "filter")

        def kept(batch: Batch) -> Batch:
            records = records_of(batch)
            verdicts = [predicate(x) for x in records]
            check_result(verdicts[0] if verdicts else None)
            return list(compress(records, verdicts))

        return self._stage("filter", name, kept, predicate, repeats_over="record")

    def flat_map(self, function: Callable[[Any], Iterable[Any]], name: str | None = None) -> Self:
        """Replace every record by the records of `function(record)`.

        Raises:
            GraphError: `function` is no function.

        >>> flow = falkirk.Dataflow()
        >>> items = flow.source("items", falkirk.Iterable(["to be", "or"]))
        >>> result = items.flat_map(str.split).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), ['to', 'be', 'or'])]
        """
        check_callable(function, "flat_map", many=True)

        def flat(batch: Batch) -> Batch:
            found: list[Any] = []
            extend = found.extend
            for record in records_of(batch):
                extend(function(record))
            return found

        return self._stage("flat_map", name, flat, function, repeats_over="record")

    def inspect(self, function: Callable[[Any], Any], name: str | None = None) -> Self:
        """Call `function(record)` on every record; for looking, not for output.

        For output use a sink.

        Raises:
            GraphError: `function` is no function.

        >>> flow = falkirk.Dataflow()
        >>> seen = flow.source("items", falkirk.Iterable(["a", "b"])).inspect(print).capture("out")
        >>> result = falkirk.run(flow)
        a
        b
        """
        check_callable(function, "inspect")

        def look(batch: Batch) -> Batch:
            result: object = None
            for record in records_of(batch):
                result = function(record)
            check_result(result)
            return batch

        return self._stage("inspect", name, look, function, repeats_over="record")

    def branch(self, predicate: Callable[[Any], Any], name: str | None = None) -> tuple[Self, Self]:
        """Split records into two streams: `predicate(record)` true, and the others.

        Raises:
            GraphError: `predicate` is no function.

        >>> flow = falkirk.Dataflow()
        >>> small, large = flow.source("items", falkirk.Iterable([1, 20, 3])).branch(lambda n: n < 10)
        >>> captures = small.capture("small"), large.capture("large")
        >>> result = falkirk.run(flow)
        >>> result.captured("small"), result.captured("large")
        ([((0,), [1, 3])], [((0,), [20])])
        """
        check_callable(predicate, "branch")

        def split(batch: Batch) -> tuple[Batch, Batch]:
            yes: list[Any] = []
            no: list[Any] = []
            verdict: object = None
            for record in records_of(batch):
                (yes if (verdict := predicate(record)) else no).append(record)
            check_result(verdict)
            return yes, no

        node = self._attach("branch", name, factory=lambda: Branch(split, by_record=True), outputs=2)
        return self._of(node, 0), self._of(node, 1)

    def distinct(self, over: Over = "scope", name: str | None = None) -> Self:
        """Each record once in a scope, or once a time.

        In the root scope, the default means once ever.

        Raises:
            GraphError: `over` is neither "scope" nor "time".

        >>> flow = falkirk.Dataflow()
        >>> items = flow.source("items", falkirk.Iterable(["a", "b", "a"], epoch_every=1))
        >>> result = items.distinct().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), ['a']), ((1,), ['b'])]
        """
        running = check_over(over, "distinct")
        node = self._attach(
            "distinct",
            name,
            Exchange(key=_whole, prepare=records_of),
            factory=lambda: Distinct(running),
            notifies=True,
            stateful=True,
        )
        return self._of(node)

    def exchange(self, by: Callable[[Any], Any], name: str | None = None) -> Self:
        """Send records with equal `by(record)` to the same worker.

        Raises:
            GraphError: `by` is no function.

        >>> flow = falkirk.Dataflow()
        >>> items = flow.source("items", falkirk.Iterable(["a", "b"]))
        >>> result = items.exchange(lambda word: word).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), ['a', 'b'])]
        """
        check_callable(by, "exchange")
        return self._stage(
            "exchange", name, records_of, channel=Exchange(key=by, prepare=records_of), repeats_over="record"
        )

    def key_by(self, function: Callable[[Any], Any], name: str | None = None) -> Keyed[Self]:
        """Pairs (function(record), record), ready for keyed verbs.

        Raises:
            GraphError: `function` is no function.

        >>> flow = falkirk.Dataflow()
        >>> items = flow.source("items", falkirk.Iterable(["a", "bc"]))
        >>> result = items.key_by(len).capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [(1, 'a'), (2, 'bc')])]
        """
        check_callable(function, "key_by")
        return self._stage(
            "key_by", name, lambda batch: [(function(x), x) for x in records_of(batch)], function, repeats_over="record"
        ).keyed()

    def keyed(self) -> Keyed[Self]:
        """The same stream as a keyed one; its records are already pairs (key, value).

        >>> flow = falkirk.Dataflow()
        >>> items = flow.source("items", falkirk.Iterable([("a", 1), ("a", 2)]))
        >>> result = items.keyed().sum().capture("out")
        >>> falkirk.run(flow).captured("out")
        [((0,), [('a', 3)])]
        """
        return Keyed(self.graph, self.scope, self.outputs, self.first, of=type(self))


def _whole(record: Any) -> Any:
    return record
