"""Makes docs/decisions/index.md of the heads of the decisions.

scripts/decisions_index.py            write the index
scripts/decisions_index.py --check    say whether it is up to date

The head of a decision is its title, an empty line and a line with its status and topic:

    # 005. Rollback frontiers are lexicographic prefixes

    Status: amended by [011](011-cuts-between-iterations.md). Topic: recovery.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "decisions"
INDEX = FOLDER / "index.md"

TOPICS = (
    "structure",
    "time",
    "progress",
    "engine",
    "state",
    "operators",
    "columns",
    "SQL",
    "differential",
    "sources and sinks",
    "recovery",
    "survivors",
    "guarantees",
    "stores",
    "runtime",
    "security",
    "errors",
    "page",
    "Spark",
    "tests",
)
"""Topics, in the order of the index."""

TITLE = re.compile(r"# (\d{3})\. (\S.*)")
STATUS = re.compile(r"Status: (accepted|(?:amended|superseded) by (.+))\. Topic: ([\w ]+)\.")
LINK = re.compile(r"\[(\d{3})\]\((\d{3}-[\w-]+\.md)\)")

HEAD = """\
# Decisions

Reasons for the design, by topic. *Amended*: a later decision has changed a part. *Superseded*: it no longer holds.
`scripts/decisions_index.py` makes this page.

```{toctree}
:hidden:
:glob:

[0-9]*
```
"""


@dataclass(frozen=True)
class Decision:
    """Head of one decision."""

    file: str
    number: str
    title: str
    status: str
    topic: str


class HeadError(ValueError):
    """Malformed head of a decision; the message has the file and the correct form."""


def head(path: Path) -> Decision:
    """The head of a decision, checked."""
    lines = path.read_text().splitlines()[:3]
    title = TITLE.fullmatch(lines[0]) if lines else None
    if title is None or title[1] != path.name[:3]:
        raise HeadError(f"{path.name}: its first line must be '# {path.name[:3]}. ' and a title, not {lines[:1]}")
    status = STATUS.fullmatch(lines[2]) if len(lines) == 3 and not lines[1] else None
    if status is None:
        raise HeadError(f"{path.name}: its third line must be 'Status: accepted. Topic: recovery.' or the like")
    if status[3] not in TOPICS:
        raise HeadError(f"{path.name}: its topic '{status[3]}' is none of {', '.join(TOPICS)}")
    if status[2] is not None:
        links = [LINK.fullmatch(each) for each in status[2].split(", ")]
        for link in links:
            if link is None or link[1] != link[2][:3] or not (path.parent / link[2]).exists() or link[1] <= title[1]:
                raise HeadError(
                    f"{path.name}: later decisions must be linked as [011](011-its-file.md), not {status[2]}"
                )
    return Decision(path.name, title[1], title[2], status[1], status[3])


def index(folder: Path = FOLDER) -> str:
    """The text of the index."""
    decisions = [head(path) for path in sorted(folder.glob("[0-9]*.md"))]
    numbers = [each.number for each in decisions]
    for number in {each for each in numbers if numbers.count(each) > 1}:
        raise HeadError(f"two decisions have the number {number}")
    parts = [HEAD]
    for topic in TOPICS:
        rows = [
            f"| [{each.number}]({each.file}) | {each.title} | {each.status} |"
            for each in decisions
            if each.topic == topic
        ]
        if rows:
            parts.append(
                "\n".join(
                    [f"\n## {topic[0].upper()}{topic[1:]}\n", "| number | decision | status |", "|---|---|---|", *rows]
                )
            )
            parts.append("\n")
    return "".join(parts)


def main() -> int:
    """Write the index, or compare it with `--check`."""
    text = index()
    if "--check" in sys.argv:
        return 0 if text == INDEX.read_text() else 1
    INDEX.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
