"""A query of Nexmark on Bytewax in its fastest form, over the same events, in processor seconds, by those of Polars.

`--part` names the query. An epoch's rows are one item, and stay so as long as no row has to meet another one. Then what can be
added up within an epoch is, by Polars, and each key has one item an epoch. The interpreter needs Bytewax, NumPy and Polars.

Two of these queries ask for more than Bytewax has: its watermarks are of each key by itself, so nothing says that a window is
complete for all auctions (q5, q7). Such windows come out when the input ends. Sessions (q11) take bids in order of event time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from typing import Any

import bytewax.operators as op
from auctions import Frames, measured
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main
from common import arguments
from house import WINDOW
from polars import DataFrame, col, concat

Item = tuple[str, Any]


class Epochs(StatefulSourcePartition):
    def __init__(self, frames: list[DataFrame]) -> None:
        self.left = enumerate(frames)

    def next_batch(self) -> list[tuple[int, DataFrame]]:
        return [next(self.left)]

    def snapshot(self) -> None:
        return None


class House(FixedPartitionedSource):
    """The epochs of a kind of events, with their numbers."""

    def __init__(self, frames: list[DataFrame]) -> None:
        self.frames = frames

    def list_parts(self) -> list[str]:
        return ["0"]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> Epochs:
        return Epochs(self.frames)


class Found(StatelessSinkPartition):
    def __init__(self, found: list[Any]) -> None:
        self.found = found

    def write_batch(self, items: list[Any]) -> None:
        self.found += items


class Output(DynamicSink):
    def __init__(self, found: list[Any]) -> None:
        self.found = found

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Found:
        return Found(self.found)


class Logic(op.StatefulBatchLogic):
    """Of a key that never goes."""

    def on_batch(self, values: list[Any]) -> tuple[Iterable[Any], bool]:
        return self.take(values), False

    def take(self, values: list[Any]) -> Iterable[Any]:
        raise NotImplementedError

    def snapshot(self) -> None:
        return None


class AtEnd(Logic):
    """Of a key that tells something when the input ends."""

    def on_eof(self) -> tuple[Iterable[Any], bool]:
        return self.rest(), True

    def rest(self) -> Iterable[Any]:
        raise NotImplementedError


class Meeting(Logic):
    """A row of one side, a tuple, and those of the other that come before it or behind it."""

    def __init__(self) -> None:
        self.one: Any = None
        self.waiting: list[Any] = []

    def take(self, values: list[Any]) -> Iterable[Any]:
        for value in values:
            if isinstance(value, tuple):
                self.one = value
            else:
                self.waiting.append(value)
        if self.one is None:
            return []
        met, self.waiting = self.waiting, []
        return [(*self.one, value) for value in met]


class Winning(Logic):
    """The highest bid for an auction while it lasts, with the one before it, for the key that it tells.

    An auction is (key, more, begins, expires), and bids are lists of their times and prices.
    """

    def __init__(self) -> None:
        self.auction: tuple[str, Any, int, int] | None = None
        self.waiting: list[Any] = []
        self.price: int | None = None

    def take(self, values: list[Any]) -> Iterable[Any]:
        for value in values:
            if isinstance(value, tuple):
                self.auction = value
            else:
                self.waiting.append(value)
        if self.auction is None:
            return []
        key, more, begins, expires = self.auction
        offers = [price for at, prices in self.waiting for t, price in zip(at, prices) if begins <= t <= expires]
        self.waiting = []
        before, most = self.price, max(offers, default=-1)
        if most < 0 or (before is not None and most <= before):
            return []
        self.price = most
        return [(key, (more, before, most))]


class Mean(Logic):
    """Of the winning bids of a category."""

    def __init__(self) -> None:
        self.total = self.n = 0

    def take(self, values: list[Any]) -> Iterable[Any]:
        for _, before, price in values:
            self.total += price - (before or 0)
            self.n += before is None
        return [(values[0][0], self.total // self.n)]


class MeanOfLast(Logic):
    """Of the winning bids of a seller's ten auctions that end last."""

    def __init__(self) -> None:
        self.of: dict[tuple[int, int], int] = {}

    def take(self, values: list[Any]) -> Iterable[Any]:
        for (_, expires, auction), _, price in values:
            self.of[expires, auction] = price
        last = nlargest(10, self.of)
        return [(values[0][0][0], sum(self.of[each] for each in last) // len(last))]


class Most(AtEnd):
    """The auctions with the most bids in a window; values are (start, auctions, numbers of bids)."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.start = 0

    def take(self, values: list[Any]) -> Iterable[Any]:
        counts = self.counts
        for start, auctions, numbers in values:
            self.start = start
            for auction, n in zip(auctions, numbers):
                counts[auction] = counts.get(auction, 0) + n
        return []

    def rest(self) -> Iterable[Any]:
        most = max(self.counts.values())
        return [(self.start, auction, n) for auction, n in self.counts.items() if n == most]


class Highest(AtEnd):
    """The highest bids in a window; values are (start, auctions, bidders, price), of the highest of an epoch."""

    def __init__(self) -> None:
        self.price = -1
        self.bids: list[Any] = []

    def take(self, values: list[Any]) -> Iterable[Any]:
        for start, auctions, bidders, price in values:
            if price > self.price:
                self.price, self.bids = price, []
            if price == self.price:
                self.bids += [(start, auction, bidder, price) for auction, bidder in zip(auctions, bidders)]
        return []

    def rest(self) -> Iterable[Any]:
        return self.bids


class Sessions(AtEnd):
    """Of a bidder; values are (bidder, first, last, number) of what cannot be parted, in order of time."""

    def __init__(self) -> None:
        self.open: tuple[int, int, int, int] | None = None

    def take(self, values: list[Any]) -> Iterable[Any]:
        closed = []
        for bidder, first, last, n in values:
            if self.open is not None and first - self.open[2] < WINDOW:
                _, begin, _, before = self.open
                self.open = (bidder, begin, last, before + n)
            else:
                closed += self.rest()
                self.open = (bidder, first, last, n)
        return closed

    def rest(self) -> Iterable[Any]:
        if self.open is None:
            return []
        bidder, first, last, n = self.open
        return [(bidder, first, last + WINDOW, n)]


class OfEpochs(AtEnd):
    """The bids of a bidder in ten epochs; values are (bidder, first epoch, number)."""

    def __init__(self) -> None:
        self.open: tuple[int, int, int] | None = None

    def take(self, values: list[Any]) -> Iterable[Any]:
        closed = []
        for bidder, start, n in values:
            if self.open is not None and self.open[1] == start:
                self.open = (bidder, start, self.open[2] + n)
            else:
                closed += self.rest()
                self.open = (bidder, start, n)
        return closed

    def rest(self) -> Iterable[Any]:
        if self.open is None:
            return []
        bidder, start, n = self.open
        return [(bidder, start, start + 10, n)]


def keyed(frame: DataFrame, key: str) -> list[Item]:
    """An item for each row: the key as text, and the whole row."""
    return list(zip(map(str, frame[key].to_list()), frame.rows()))


class Streams:
    def __init__(self, flow: Dataflow, frames: Frames) -> None:
        self.flow, self.frames = flow, frames

    def of(self, kind: str, made: Callable[[int, DataFrame], Any]) -> Any:
        """One item for each epoch of a kind, as `made` makes it."""
        read = op.input(kind, self.flow, House(self.frames[kind]))
        return op.map(f"{kind} made", read, lambda item: made(*item))

    def items(self, kind: str, made: Callable[[int, DataFrame], list[Item]]) -> Any:
        """The same for several items."""
        read = op.input(kind, self.flow, House(self.frames[kind]))
        return op.flat_map(f"{kind} made", read, lambda item: made(*item))


def started(frame: DataFrame) -> DataFrame:
    return frame.with_columns(start=col("at") // WINDOW * WINDOW)


def by_key(name: str, items: Any, logic: Callable[[], Logic]) -> Any:
    """The outputs of the logic of each key, with keys."""
    return op.stateful_batch(name, items, lambda state: logic())


def values(stream: Any) -> Any:
    return op.map("values", stream, lambda item: item[1])


def q3(house: Streams) -> Any:
    def sellers(_: int, frame: DataFrame) -> list[Item]:
        frame = frame.filter(col("state").is_in(["OR", "ID", "CA"]))
        return list(zip(map(str, frame["id"].to_list()), frame.select("name", "city", "state").rows()))

    def things(_: int, frame: DataFrame) -> list[Item]:
        frame = frame.filter(category=10)
        return list(zip(map(str, frame["seller"].to_list()), frame["id"].to_list()))

    return values(
        by_key("join", op.merge("both", house.items("persons", sellers), house.items("auctions", things)), Meeting)
    )


def winning(house: Streams, key: str, more: Callable[[DataFrame], list[Any]]) -> Any:
    """The winning bids that change, by a key of the auction."""

    def auctions(_: int, frame: DataFrame) -> list[Item]:
        keys, begins, expires = map(str, frame[key].to_list()), frame["at"].to_list(), frame["expires"].to_list()
        return list(zip(map(str, frame["id"].to_list()), zip(keys, more(frame), begins, expires)))

    def bids(_: int, frame: DataFrame) -> list[Item]:
        groups = frame.group_by("auction").agg("at", "price")
        pairs = map(list, zip(groups["at"].to_list(), groups["price"].to_list()))
        return list(zip(map(str, groups["auction"].to_list()), pairs))

    both = op.merge("both", house.items("auctions", auctions), house.items("bids", bids))
    return values(by_key("winning", both, Winning))


def q4(house: Streams) -> Any:
    return op.map(
        "mean of", by_key("mean", winning(house, "category", lambda f: f["category"].to_list()), Mean), second
    )


def q6(house: Streams) -> Any:
    auctions = winning(house, "seller", lambda frame: frame.select("seller", "expires", "id").rows())
    return op.map("mean of", by_key("mean", auctions, MeanOfLast), second)


def second(item: Item) -> Any:
    return item[1]


def q5(house: Streams) -> Any:
    step = WINDOW // 5

    def counts(_: int, frame: DataFrame) -> list[Item]:
        few = frame.group_by(start=col("at") // step, auction="auction").len("n")
        every = concat(few.with_columns(start=(col("start") - back) * step) for back in range(5))
        whole = every.group_by("start", "auction").agg(col("n").sum())
        return keyed(whole.group_by("start").agg("auction", "n"), "start")

    return values(by_key("most", house.items("bids", counts), Most))


def q7(house: Streams) -> Any:
    def highest(_: int, frame: DataFrame) -> list[Item]:
        most = started(frame).filter(col("price") == col("price").max().over("start"))
        return keyed(most.group_by("start").agg("auction", "bidder", col("price").first()), "start")

    return values(by_key("highest", house.items("bids", highest), Highest))


def q8(house: Streams) -> Any:
    def joined(_: int, frame: DataFrame) -> list[Item]:
        frame = started(frame)
        keys = zip(frame["id"].to_list(), frame["start"].to_list())
        return [(f"{id_}/{start}", (id_, name, start)) for (id_, start), name in zip(keys, frame["name"].to_list())]

    def selling(_: int, frame: DataFrame) -> list[Item]:
        pairs = started(frame).select("seller", "start").unique().rows()
        return [(f"{seller}/{start}", None) for seller, start in pairs]

    class Once(Meeting):
        """A person who sells comes out once."""

        told = False

        def take(self, values: list[Any]) -> Iterable[Any]:
            found = [row[:-1] for row in super().take(values)]
            if not found or self.told:
                return []
            self.told = True
            return found[:1]

    return values(
        by_key("join", op.merge("both", house.items("persons", joined), house.items("auctions", selling)), Once)
    )


def q11(house: Streams) -> Any:
    def parts(_: int, frame: DataFrame) -> list[Item]:
        bids = frame.sort("bidder", "at")
        new = (col("at").diff().over("bidder") >= WINDOW).fill_null(True)
        groups = bids.with_columns(part=new.cum_sum().over("bidder")).group_by("bidder", "part", maintain_order=True)
        made = groups.agg(first=col("at").min(), last=col("at").max(), n=col("at").len())
        return keyed(made.drop("part"), "bidder")

    return values(by_key("sessions", house.items("bids", parts), Sessions))


def q12(house: Streams) -> Any:
    def counts(epoch: int, frame: DataFrame) -> list[Item]:
        made = frame.group_by("bidder").len("n")
        start = epoch // 10 * 10
        return [(str(bidder), (bidder, start, n)) for bidder, n in made.rows()]

    return values(by_key("epochs", house.items("bids", counts), OfEpochs))


QUERIES: dict[str, Callable[[Streams], Any]] = {
    "q0": lambda house: house.of("bids", lambda _, frame: frame),
    "q1": lambda house: house.of("bids", lambda _, frame: frame.with_columns(col("price") * 908 // 1000)),
    "q2": lambda house: house.of(
        "bids", lambda _, frame: frame.filter(col("auction") % 123 == 0).select("auction", "price")
    ),
    "q3": q3,
    "q4": q4,
    "q5": q5,
    "q6": q6,
    "q7": q7,
    "q8": q8,
    "q11": q11,
    "q12": q12,
}

args = arguments()


def run(frames: Frames) -> Callable[[], list[Any]]:
    flow: Any = Dataflow(args.part)
    found: list[Any] = []
    op.output("out", QUERIES[args.part](Streams(flow, frames)), Output(found))
    run_main(flow)
    return lambda: found


measured(args.part, args.size, run)
