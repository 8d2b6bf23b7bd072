"""The quickest way between two places, asked for while roads open, close and become slow.

    python examples/routes.py
    road York Leeds 40            # 40 minutes, either way; said again, it takes as long as is said then
    road Leeds Hull 65
    ask York Hull                 # answered now, and again whenever the answer changes
    York to Hull: 105 minutes
    close Leeds Hull
    York to Hull: no way
    forget York Hull

Roads and questions are collections. A command changes one record of one of them, and is an epoch: what depends on the record is
computed again, nothing else, and once the epoch is complete what came out of it is the answer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import falkirk
from falkirk import differential
from falkirk.differential import Collection


def quickest(roads: Collection, questions: Collection) -> Collection:
    """Records (from, to, minutes, or None) for `questions` ((from, to), True) about `roads` ((one end, other end), minutes)."""
    onward = roads.flat_map(lambda road: [(a, (b, road[1])) for a, b in (road[0], road[0][::-1])])
    begun = questions.map(lambda asked: asked[0][0]).distinct().map(lambda place: ((place, place), 0))

    def nearer(known: Collection) -> Collection:
        """Pairs ((where, from), least minutes so far): one road further."""
        here = known.map(lambda way: (way[0][0], (way[0][1], way[1])))
        further = here.join(onward, lambda _, way, road: ((road[0], way[0]), way[1] + road[1]))
        return further.concat(begun).min()

    asked = questions.map(lambda asked: (asked[0][::-1], True))
    return asked.left_join(begun.iterate(nearer), lambda ends, _, minutes: (ends[1], ends[0], minutes)).consolidate()


def answers(commands: Iterable[str]) -> Iterator[str]:
    """The answers to each command, as soon as it has been given."""
    flow = falkirk.Dataflow("routes")
    found = quickest(differential.input_of(flow, "roads"), differential.input_of(flow, "questions"))
    changes, complete = found.capture("changes"), found.probe("complete")
    with falkirk.Session(flow) as session:
        roads, questions = (differential.Input(session, name) for name in ("roads", "questions"))
        seen = 0
        for epoch, command in enumerate(commands):
            try:
                obey(command.split(), roads, questions)
            except ValueError as error:
                yield f"? {error}"
            for each in roads, questions:
                each.advance_to(epoch + 1)
            session.step_until(lambda: session.probe(complete).done(epoch))  # noqa: B023 - it is called at once
            news = session.captured(changes)[seen:]
            seen += len(news)
            for start, end, minutes in sorted(record for _, batch in news for record, by in batch if by > 0):
                yield f"{start} to {end}: " + ("no way" if minutes is None else f"{minutes} minutes")


def obey(words: list[str], roads: differential.Input, questions: differential.Input) -> None:
    """Change one collection. Raises ValueError, with what is wrong, for what is no command."""
    match words:
        case []:
            pass
        case ["road", a, b, minutes] if minutes.isdecimal():
            roads.upsert((min(a, b), max(a, b)), int(minutes))
        case ["close", a, b]:
            roads.upsert((min(a, b), max(a, b)), None)
        case ["ask", a, b]:
            questions.upsert((a, b), True)
        case ["forget", a, b]:
            questions.upsert((a, b), None)
        case _:
            raise ValueError("road A B MINUTES, close A B, ask A B, or forget A B")


if __name__ == "__main__":
    for answer in answers(sys.stdin):
        print(answer, flush=True)
