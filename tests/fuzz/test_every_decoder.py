"""Every place of the project that makes sense of bytes is known to the fuzz targets, or is known to need none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.fuzz.covered import COVERED, NO_NEED
from tests.fuzz.decoders import TARGETS
from tests.test_architecture import Module, modules, report

PARSERS = re.compile(
    r"msgspec\.(msgpack|json|toml|yaml)\.(Decoder|decode)|msgspec\.convert|Typed(\[.*\])?"
    r"|json\.loads?|tomllib\.loads?|csv\.(reader|DictReader)|ast\.literal_eval|configparser\..*|yaml\..*"
    r"|(.*\.)?(unpack|unpack_from|iter_unpack)|int\.from_bytes"
    r"|pa\.ipc\.(open_\w+|read_\w+)|arrow_(csv|json)\.(read|open)_\w+|pq\.(ParquetFile|read_\w+)|pa\.\w*(parquet|csv|json)\..*"
    r"|np\.(frombuffer|load|fromfile|fromstring|lib\.format\.\w+)|pl\.(read|scan)_\w+"
    r"|(cloud)?pickle\.loads?|.*curve_public|uuid\.UUID|ZoneInfo"
)
"""Calls that take bytes or text apart. What is built on one of these is covered by whoever calls it from outside."""


def sites(module: Module) -> Iterator[str]:
    """The places where a module calls one: the function, class or name that the call belongs to."""

    def walk(node: ast.AST, where: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner = where
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = (*where, child.name)
            elif not where and isinstance(child, ast.Assign | ast.AnnAssign):
                target = child.targets[0] if isinstance(child, ast.Assign) else child.target
                inner = (ast.unparse(target),)
            if isinstance(child, ast.Call) and PARSERS.fullmatch(ast.unparse(child.func)):
                yield f"{module.name}:{'.'.join(where)}"
            yield from walk(child, inner)

    yield from walk(module.tree, ())


def test_every_decoder_is_fuzzed() -> None:
    found = {site for module in modules().values() for site in sites(module)}
    known = COVERED.keys() | NO_NEED.keys()
    problems = [
        f"{site} makes sense of bytes: fuzz it (tests/fuzz), and say so in tests/fuzz/covered.py"
        for site in found - known
    ]
    problems += [f"{site} is in tests/fuzz/covered.py, and is gone" for site in known - found]
    problems += [f"{site} is said to be both" for site in COVERED.keys() & NO_NEED.keys()]
    problems += [
        f"{site}: there is no target {name!r}"
        for site, names in COVERED.items()
        for name in names
        if name not in TARGETS
    ]
    assert not problems, report(sorted(problems))


def test_every_target_stands_for_something() -> None:
    idle = TARGETS.keys() - {name for names in COVERED.values() for name in names} - BESIDES
    assert not idle, f"targets that no decoder needs: {sorted(idle)}"


BESIDES = {
    "written stacks",
    "lines of output",
    "join",
    "coordinator",
    "greeting",
    "position",
    "lines",
    "spark's message",
    "end of query",
    "worker journal",
}
"""Readers of what comes from outside that take it apart by hand."""
