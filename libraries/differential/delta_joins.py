"""Delta joins: joins of three or more collections without intermediate traces.

Each change of one collection is looked up in the traces of the others, one after the other: in those of collections before it
in the list as they are at its time, in those behind it as they were before. So each combination of changes is found once,
whichever of them comes last. (The delta joins of Materialize; Ammar et al., *Evaluation of subgraph queries*, 2018.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from libraries.differential.channel import BY_KEY, ByPlace
from libraries.differential.collection import Collection, reading_at, reading_of
from libraries.differential.lookups import Lookup, Question
from libraries.differential.rows import NOTHING, Rows, Tuples, of_key, split
from timely.data.batch import Batch
from timely.errors import GraphError, user_site
from timely.operators.channels import PIPELINE

Relation = tuple[Collection, str]
"""Collection of pairs, or of single values, with a letter for each place."""


def delta_join(*relations: Relation, name: str | None = None) -> Collection:
    """Join of several relations on the letters that they share, as tuples of values.

    The multiplicity of a tuple is the product of those of its parts.

    A relation is a collection with two letters for its pairs (key, value), or one for its records; a letter that comes
    again stands for the same value. The result has a value for each letter, in the order in which they first come. Each
    relation keeps one trace, or two where it is looked up from both ends, which relations of the same collection share;
    there are no others. Not in loops: there, join two at a time.

    Raises:
        GraphError: there are fewer than two relations, or one that is no pair of a collection and one or two different
            letters; a collection is in a loop; relations have no letter in common.

    >>> from falkirk import differential
    >>> flow = falkirk.Dataflow()
    >>> pairs = differential.from_records(flow.source("edges", falkirk.Iterable([(1, 2), (2, 3), (1, 3), (3, 4)])))
    >>> seen = differential.delta_join((pairs, "ab"), (pairs, "bc"), (pairs, "ac")).capture("out")
    >>> differential.snapshot(falkirk.run(flow).captured("out"))
    {(1, 2, 3): 1}
    """
    _check(relations)
    arranged: dict[tuple[Any, ...], Collection] = {}

    def by(number: int, letter: str) -> Collection:
        """A relation arranged by one of its letters."""
        collection, letters = relations[number]
        turned = len(letters) == 2 and letter == letters[1]
        place = (collection.stream.outputs, len(letters), turned)
        if place not in arranged:
            keyed = (
                collection.as_keys() if len(letters) == 1 else collection.map_pairs(_turned if turned else _straight)
            )
            arranged[place] = keyed.arrange()
        return arranged[place]

    wanted = list(dict.fromkeys(letter for _, letters in relations for letter in letters))
    graph = relations[0][0].stream.graph
    base = name or graph.fresh_name("delta_join")
    paths: list[Collection] = []
    for start, (collection, letters) in enumerate(relations):
        known = list(letters)
        begun_by = dict.fromkeys(letters, start)
        found = collection._stage("tuples", None, partial(_begun, len(letters)))
        left = [number for number in range(len(relations)) if number != start]
        while left:
            # First those that only confirm, then those that add a letter.
            number = min(left, key=lambda each: _rank(relations[each][1], known))
            left.remove(number)
            of = relations[number][1]
            key = next((letter for letter in of if letter in known), None)
            if key is None:
                raise GraphError(
                    f"{user_site()}: no letter of {of!r} is in {''.join(known)!r}, so all pairs of both would be in the "
                    "result: give relations that have letters in common"
                )
            other = next((letter for letter in of if letter != key), None)
            # Of equal values the one that is given is that of the first relation, whichever of them a change came to.
            says = {known.index(each): each != key for each in of if each in known and number < begun_by[each]}
            begun_by |= {each: min(number, begun_by.get(each, number)) for each in of}
            place = known.index(other) if other in known else None
            question = Question(known.index(key), place, other is not None and place is None, says, number < start)
            found = _looked_up(found, by(number, key), question, f"{base}-{start}-{number}")
            if other is not None and other not in known:
                known.append(other)
        paths.append(found._stage("chosen", None, partial(_chosen, [known.index(letter) for letter in wanted])))
    return paths[0].concat(*paths[1:])


def _check(relations: Sequence[Relation]) -> None:
    site = user_site()
    for each in relations:
        if not (isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], Collection)):
            raise GraphError(
                f"{site}: delta_join takes pairs of a collection and letters, as in (edges, 'ab'), not {each!r}"
            )
        collection, letters = each
        if not isinstance(letters, str) or len(letters) not in (1, 2) or len(set(letters)) < len(letters):
            raise GraphError(f"{site}: a relation has one letter or two different ones, not {letters!r}")
        if collection.scope.parent is not None:
            raise GraphError(
                f"{site}: delta_join works outside of loops, where times have one order; join two at a time here"
            )
    if len(relations) < 2:
        raise GraphError(f"{site}: delta_join takes two relations or more")


def _rank(letters: str, known: Sequence[str]) -> tuple[bool, int]:
    """Priority of a relation in the lookup order: the lower, the sooner.

    Relations without a known letter come last, then those that add a letter.
    """
    new = len({*letters} - {*known})
    return new == len(letters), new


def _looked_up(found: Collection, among: Collection, question: Question, name: str) -> Collection:
    reading = reading_at(among, name)
    made = found.stream.binary(
        among.stream,
        name,
        partial(Lookup, question, reading),
        ByPlace(place=question.key),
        BY_KEY if reading is None else PIPELINE,
        kind="lookup",
    )
    return reading_of(made, [(reading, among)])


def _turned(key: Any, value: Any) -> Any:
    return value, key


def _straight(key: Any, value: Any) -> Any:
    return key, value


def _begun(letters: int, batch: Batch) -> Batch:
    """Changes of a relation as tuples with that number of letters."""
    pairs, columns, _ = split(batch)
    made: list[Any] = []
    for rows in columns:
        width = 1 if rows.value[0] == NOTHING else 2
        if width == letters:
            made.append(Tuples((rows.key, rows.value)[:width], rows.diff))
        else:
            pairs += rows.pairs()
    if letters == 1:
        return made + [((record,), by) for record, by in pairs]
    return made + [(record if of_key(record)[1] else (record, None), by) for record, by in pairs]


def _chosen(places: list[int], batch: Batch) -> Batch:
    """Records with the values of tuples in the order of `places`."""
    made: list[Any] = []
    for each in batch:
        if type(each) is not Tuples:
            made.append((tuple(each[0][place] for place in places), each[1]))
        elif len(places) == 2:
            made.append(Rows(each.columns[places[0]], each.columns[places[1]], each.diff))
        else:
            made += Tuples(tuple(each.columns[place] for place in places), each.diff).pairs()
    return made
