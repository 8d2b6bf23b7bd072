"""The events of an auction house: people join, put things up for auction, and bid.

Of fifty events one is a person, three are auctions and forty-six are bids, as in Nexmark (Tucker, Tufte, Papadimos and Maier,
*NEXMark: a benchmark for queries over data streams*, 2002). Half of the bids are for the newest hundredth auction; three
quarters of the auctions are of a newest hundredth person. Each epoch is made from its number and a seed, so it can be read
again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

FIRST_PERSON = FIRST_AUCTION = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne")
CHANNELS = ("Apple", "Google", "Facebook", "Baidu")
KINDS = ("persons", "auctions", "bids")

WINDOW = 10_000
"""Milliseconds of event time: what the queries call a window."""

_GROUP, _AUCTIONS = 50, 3
_IN_FLIGHT = 100
"""Auctions that are bid for at a time."""


@dataclass(frozen=True)
class House:
    """An auction house.

    Args:
        events: of its life.
        per_epoch: events an epoch, a multiple of 50.
        per_second: events a second of event time, which is in milliseconds from 0.
        seed: of chance.
    """

    events: int = 100_000
    per_epoch: int = 1_000
    per_second: int = 10_000
    seed: int = 7

    def __post_init__(self) -> None:
        if self.per_epoch % _GROUP or self.events % self.per_epoch:
            raise ValueError(f"per_epoch is a multiple of {_GROUP}, and events one of per_epoch")

    @property
    def epochs(self) -> int:
        """Their number."""
        return self.events // self.per_epoch

    def frame(self, kind: str, epoch: int) -> pl.DataFrame:
        """The persons, auctions or bids of an epoch."""
        chance = np.random.default_rng((self.seed, KINDS.index(kind), epoch))
        number = np.arange(epoch * self.per_epoch, (epoch + 1) * self.per_epoch)
        place = number % _GROUP
        if kind == "persons":
            return self._persons(number[place == 0], chance)
        if kind == "auctions":
            return self._auctions(number[(place > 0) & (place <= _AUCTIONS)], chance)
        return self._bids(number[place > _AUCTIONS], chance)

    def _at(self, number: np.ndarray) -> np.ndarray:
        return number * 1_000 // self.per_second

    def _persons(self, number: np.ndarray, chance: np.random.Generator) -> pl.DataFrame:
        person = FIRST_PERSON + number // _GROUP
        count = len(person)
        return pl.DataFrame(
            {
                "id": person,
                "name": [f"person-{each}" for each in person],
                "email": [f"{each}@example.org" for each in person],
                "city": pl.Series(CITIES).gather(chance.integers(0, len(CITIES), count)),
                "state": pl.Series(STATES).gather(chance.integers(0, len(STATES), count)),
                "at": self._at(number),
            }
        )

    def _auctions(self, number: np.ndarray, chance: np.random.Generator) -> pl.DataFrame:
        auction = FIRST_AUCTION + number // _GROUP * _AUCTIONS + number % _GROUP - 1
        at = self._at(number)
        count = len(auction)
        opening = _price(chance, count)
        # An auction lasts until about as many have begun as are open at a time.
        lasts = 1 + chance.integers(0, 2 * max(1, _IN_FLIGHT * _GROUP // _AUCTIONS * 1_000 // self.per_second), count)
        return pl.DataFrame(
            {
                "id": auction,
                "item": [f"item-{each}" for each in auction],
                "initial_bid": opening,
                "reserve": opening + _price(chance, count),
                "at": at,
                "expires": at + lasts,
                "seller": _person(number, chance),
                "category": FIRST_CATEGORY + chance.integers(0, CATEGORIES, count),
            }
        )

    def _bids(self, number: np.ndarray, chance: np.random.Generator) -> pl.DataFrame:
        count = len(number)
        newest = number // _GROUP * _AUCTIONS + _AUCTIONS - 1
        oldest = np.maximum(0, newest - _IN_FLIGHT)
        auction = np.where(
            chance.random(count) < 0.5, newest // 100 * 100, chance.integers(oldest, newest, count, endpoint=True)
        )
        channel = chance.integers(0, len(CHANNELS), count)
        return pl.DataFrame(
            {
                "auction": FIRST_AUCTION + auction,
                "bidder": _person(number, chance),
                "price": _price(chance, count),
                "channel": pl.Series(CHANNELS).gather(channel),
                "at": self._at(number),
            }
        )


def _person(number: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    newest = number // _GROUP
    anyone = chance.integers(np.maximum(0, newest - 1_000), newest, endpoint=True)
    return FIRST_PERSON + np.where(chance.random(len(number)) < 0.75, newest // 100 * 100, anyone)


def _price(chance: np.random.Generator, count: int) -> np.ndarray:
    """In cents, from one dollar to a million, evenly in their logarithms."""
    return np.rint(100 * 10 ** (6 * chance.random(count))).astype(np.int64)
