"""First lines of docstrings: short, without a relative clause up front, in the terms of the field.

tests/words.toml holds how many first lines of each room still break each rule. The numbers only fall.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "words.toml"
HOUSES = ("timely", "recovery", "monitor", "runtime", "falkirk", "libraries", "formal")
# Houses with a number for each of their folders.
DIVIDED = ("timely", "libraries")

LONGEST = 80
BEGINNING = 7
RELATIVE = frozenset({"that", "which", "who", "whose", "what", "where", "how", "whether"})
PRIVATE = frozenset({"told", "heard", "alone", "said", "desk", "desks", "keeper", "keepers"})
RULES = {
    "long": f"more than {LONGEST} characters",
    "relative": f"a relative or interrogative word among the first {BEGINNING} words",
    "private": "a private word for a thing that has a name",
}


@dataclass(frozen=True)
class FirstLine:
    """First line of a docstring, with its place."""

    file: str
    line: int
    text: str

    def breaks(self) -> set[str]:
        """Names of the rules broken by the line."""
        words = re.findall(r"[a-z]+", self.text.lower())
        found = {
            "long": len(self.text) > LONGEST,
            "relative": not RELATIVE.isdisjoint(words[:BEGINNING]),
            "private": not PRIVATE.isdisjoint(words),
        }
        return {rule for rule, broken in found.items() if broken}


def first_lines(source: str, file: str) -> Iterator[FirstLine]:
    """First lines of the docstrings of a module, its classes, functions and attributes."""
    bodies = [ast.parse(source).body]
    while bodies:
        before: ast.stmt | None = None
        for statement in bodies.pop():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))) if text.strip() and (
                    before is None or isinstance(before, (ast.Assign, ast.AnnAssign))
                ):
                    yield FirstLine(file, statement.lineno, text.strip().splitlines()[0])
            bodies += [body for name in ("body", "orelse", "finalbody") if (body := getattr(statement, name, None))]
            before = statement


def room(file: str) -> str:
    """Room of a file: its house, or its folder in a house with a number for each folder."""
    parts = Path(file).parts
    return "/".join(parts[: 2 if parts[0] in DIVIDED and len(parts) > 2 else 1])


@cache
def broken() -> dict[str, dict[str, list[FirstLine]]]:
    """First lines against the rules, by room and rule, those of the newest files first."""
    rooms: dict[str, dict[str, list[FirstLine]]] = {}
    paths = [path for house in HOUSES for path in (ROOT / house).rglob("*.py")]
    for path in sorted(paths, key=lambda path: (-path.stat().st_mtime, path)):
        file = path.relative_to(ROOT).as_posix()
        rules = rooms.setdefault(room(file), {rule: [] for rule in RULES})
        for line in first_lines(path.read_text(), file):
            for rule in line.breaks():
                rules[rule].append(line)
    return rooms


def table() -> str:
    """The table as it would be written today."""
    return "".join(
        f'"{name}" = {{ ' + ", ".join(f"{rule} = {len(lines)}" for rule, lines in rules.items()) + " }\n"
        for name, rules in sorted(broken().items())
    )


def allowed() -> dict[str, dict[str, int]]:
    """Numbers of the table."""
    return tomllib.loads(TABLE.read_text())


def complaint(name: str, rule: str, number: int, found: list[FirstLine]) -> str | None:
    """Message about a room with another number of such lines than the table has, or None."""
    if len(found) > number:
        listed = "".join(f"\n  {line.file}:{line.line}: {line.text}" for line in found[: max(20, len(found) - number)])
        return (
            f"{name}: {len(found)} first lines of docstrings have {RULES[rule]}, {number} are allowed."
            f" Rewrite as many; newest files first:{listed}"
        )
    if len(found) < number:
        return f"{name}: {len(found)} first lines have {RULES[rule]}: lower {rule} = {number} in {TABLE.name}"
    return None


def test_the_table_names_every_room() -> None:
    assert sorted(allowed()) == sorted(broken()), f"python tests/test_words.py prints the lines of {TABLE.name}"


@pytest.mark.parametrize("name", sorted(allowed()))
def test_no_room_has_more_such_lines_than_its_number(name: str) -> None:
    numbers = allowed()[name]
    lines = broken().get(name, {})
    complaints = [complaint(name, rule, numbers[rule], found) for rule, found in lines.items()]
    assert not any(complaints), "\n".join(text for text in complaints if text)


def test_each_rule_finds_its_lines() -> None:
    source = '''"""The number by which a task calls itself."""
LIMIT = 3
"""Longest wait, %s."""
print()
"""No docstring: what follows a call."""
class Desk:
    """Queue of requests that is unbounded."""
    def hear(self):
        """Message told to a worker.

        Which one?
        """
    async def ask(self):
        """Request, sent to the one worker of the group that leads it."""
''' % ("x" * LONGEST)
    found = {line.line: line.breaks() for line in first_lines(source, "a.py")}
    assert found == {1: {"relative"}, 3: {"long"}, 7: {"relative"}, 9: {"private"}, 14: set()}


def test_a_number_only_falls() -> None:
    lines = [FirstLine("a.py", 3, "Said."), FirstLine("a.py", 9, "Heard.")]
    assert complaint("a", "private", 2, lines) is None
    assert "a.py:3: Said." in (complaint("a", "private", 1, lines) or "")
    assert "lower private = 3" in (complaint("a", "private", 3, lines) or "")


if __name__ == "__main__":
    print(table(), end="")
