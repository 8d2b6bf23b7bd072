"""The table of mistakes: what a user writes, and what he is told. One file a chapter, `NN-name.txt` beside this one.

An entry is

    === what is wrong, in a few words
    the program, or $ with a command line
    ---
    the message

`scripts/mistakes_page.py` makes docs/mistakes.md of it; with `--accept` it writes the messages that there are now into the
table.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.command_line import falkirk_command

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
PAGE = ROOT / "docs" / "mistakes.md"

PRELUDE = """\
from contextlib import suppress
from pathlib import Path

import falkirk
import polars as pl
import pyarrow as pa
from falkirk import *
from falkirk import agg, spark

flow = Dataflow("demo")
numbers = flow.source("numbers", Iterable(range(6), epoch_every=2))
pairs = flow.source("pairs", Iterable([("a", 1), ("b", 2)])).keyed()
table = flow.columns("table", Batches([pl.DataFrame({"key": ["a", "b"], "value": [1, 2]})]))
"""
"""The text in front of every program; its lines do not count."""

APP = """\
from falkirk import Dataflow, Iterable

def build(n=4):
    flow = Dataflow("demo")
    flow.source("numbers", Iterable(range(n), epoch_every=2)).map(abs, name="abs").capture("out")
    return flow
"""
"""The program of command lines that have none of their own."""


@dataclass(frozen=True)
class Mistake:
    """One entry. `program` may end with a command line, which begins with "$ "."""

    chapter: str
    title: str
    program: str
    message: str

    def __str__(self) -> str:
        return self.title

    @property
    def command(self) -> list[str] | None:
        """The words of the command line, if that is what is wrong."""
        last = self.program.splitlines()[-1]
        return shlex.split(last[2:]) if last.startswith("$ ") else None


def read() -> list[Mistake]:
    """All entries, in order."""
    return [
        _entry(path.stem, text)
        for path in sorted(FOLDER.glob("*.txt"))
        for text in re.split(r"^=== ", path.read_text(), flags=re.MULTILINE)[1:]
    ]


def _entry(chapter: str, text: str) -> Mistake:
    title, _, rest = text.partition("\n")
    program, _, message = rest.partition("\n---\n")
    return Mistake(chapter, title.strip(), program.strip("\n"), message.strip("\n"))


def write(mistakes: list[Mistake]) -> None:
    """Write the entries, by chapter."""
    for path in FOLDER.glob("*.txt"):
        entries = [f"=== {m.title}\n{m.program}\n---\n{m.message}\n" for m in mistakes if m.chapter == path.stem]
        path.write_text("\n".join(entries))


def accepted(mistakes: list[Mistake]) -> list[Mistake]:
    """The entries with what users are told now."""
    return [replace(mistake, message=told(mistake)) for mistake in mistakes]


class NoMistake(Exception):
    """A program of the table runs without an error."""


def told(mistake: Mistake) -> str:
    """The message to the user, with the paths of this machine left out."""
    with tempfile.TemporaryDirectory(prefix="mistake-") as folder, _inside(Path(folder)):
        text = _by_command(mistake) if mistake.command is not None else _by_program(mistake.program)
        return _normal(text, folder)


def _by_program(program: str) -> str:
    import linecache

    from falkirk.failures import explain
    from runtime.run import run

    names: dict[str, Any] = {"__name__": "app"}
    exec(compile(PRELUDE, "prelude.py", "exec"), names)
    linecache.cache["app.py"] = (len(program), None, [f"{line}\n" for line in program.splitlines()], "app.py")
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            exec(compile(program, "app.py", "exec"), names)
            run(names["flow"])
    except Exception as error:
        return explain(error).message
    finally:
        del linecache.cache["app.py"]
    raise NoMistake(program)


def _by_command(mistake: Mistake) -> str:
    lines = mistake.program.splitlines()
    Path("app.py").write_text("\n".join(lines[:-1]) + "\n" if lines[1:] else APP)
    words = mistake.command
    assert words is not None
    assert words[0] == "falkirk"
    code, said = falkirk_command(*words[1:])
    if code == 0:
        raise NoMistake(mistake.program)
    return said


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Be in `folder`, and undo what programs change of this process."""
    here, path, finders, modules = Path.cwd(), list(sys.path), list(sys.meta_path), set(sys.modules)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        sys.path[:], sys.meta_path[:] = path, finders
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


_BOX = re.compile(r"^[│╭╰].*$", re.MULTILINE)


def _normal(text: str, folder: str) -> str:
    """Without paths of this machine, numbers of processes, and the frame that is drawn around wrong usage."""
    real = os.path.realpath(folder)
    for place in (real, folder):
        text = text.replace(f"{place}/", "").replace(place, "the current folder")
    boxed = [line.strip("│ ") for line in _BOX.findall(text) if line.startswith("│")]
    if boxed and "─ Error ─" in text:
        text = " ".join(boxed)
    text = text.replace(sys.prefix, "/env")
    text = re.sub(r"\b0x[0-9a-fA-F]{6,}\b", "0x...", text)
    text = re.sub(r"\bprocess \d+", "process N", text)
    text = re.sub(r"which has \d+ cores: take at most [\d,]*\d", "which has N cores: take at most M", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
