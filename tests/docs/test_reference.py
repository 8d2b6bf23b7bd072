"""Every public name is in the reference, with an example, and every example in a docstring prints what it says."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import falkirk
from runtime.program import packed, unpacked

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("timely", "recovery", "monitor", "runtime", "libraries", "falkirk", "bench", "examples")
LIBRARIES = ("agg", "differential", "graph", "lindi", "spark")
VERBS = {
    "Changes",
    "Columns",
    "Dataflow",
    "GroupBy",
    "Keyed",
    "Stream",
    "Windowed",
    "WindowedColumns",
    "differential.Collection",
    "lindi.Groups",
    "lindi.Query",
    "lindi.Table",
}
"""Classes whose methods are what a user writes in a program: each has an example of its own."""

ELSEWHERE = {
    "Partition": "Source has one",
    "Position": "an alias of int and text",
    "State": "KeyedState is one",
    "Time": "an alias of tuple",
    "Writer": "Sink has one",
    "agg.Aggregate": "what agg.sum and its siblings give",
    "agg.parts_of": "for libraries",
    "END": "a number",
    **dict.fromkeys(("Delta", "DeltaSink", "Iceberg", "IcebergSink"), "docs/tables.md, which runs: they need an extra"),
    "differential.Collection.probe": "Stream.probe",
    "lindi.Query.probe": "Stream.probe",
    "lindi.Table.probe": "Stream.probe",
    **dict.fromkeys(
        ("Columns", "GroupBy", "Keyed", "Stream", "Windowed", "WindowedColumns", "agg"), "its methods have them"
    ),
    **dict.fromkeys(("differential.Collection", "lindi.Groups", "lindi.Query", "lindi.Table"), "its methods have them"),
    **{f"spark.{name}": "docs/spark_*.md, which run" for name in ("SparkError", "SparkOptions", "Stream", "batch")},
    "spark.register": "docs/tables.md: it needs a session of the user's",
    **{f"spark.{name}": "docs/spark_*.md, which run" for name in ("sink", "source", "stop", "write")},
}
"""Names without an example of their own, and why."""


def public() -> Iterator[tuple[str, Any]]:
    """Each public name with what it names: of `falkirk`, of its libraries, and the methods of the classes in VERBS."""
    for name in falkirk.__all__:
        yield name, getattr(falkirk, name)
    for library in LIBRARIES:
        found = importlib.import_module(getattr(falkirk, library).__name__)
        yield from ((f"{library}.{name}", getattr(found, name)) for name in found.__all__)


def methods(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The public methods of a class in VERBS, also those that it inherits, but not those that it refuses.

    Changes refuse what they inherit, but for what reads no rows.
    """
    if name in VERBS:
        for method, function in inspect.getmembers(value, inspect.isfunction):
            refused = value is falkirk.Changes and (method not in vars(value) or function.__name__ == "refuse")
            if not method.startswith("_") and not refused:
                yield f"{name}.{method}", function


EVERYTHING = dict(public())
EVERYTHING |= {name: value for of, each in list(EVERYTHING.items()) for name, value in methods(of, each)}


def examples(value: Any) -> list[doctest.Example]:
    """The examples in a docstring. A number has that of `int`."""
    return doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")


def test_each_public_name_has_an_example_or_a_reason() -> None:
    assert {name for name, value in EVERYTHING.items() if not examples(value)} == ELSEWHERE.keys()


@cache
def _imported(module: str) -> dict[str, tuple[str, str]]:
    """Of each name that a module imports, also for a type checker alone, the module that has it, and its name there."""
    nodes = ast.walk(ast.parse(inspect.getsource(sys.modules[module])))
    return {
        each.asname or each.name: (str(node.module), each.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }


def _returned(function: Callable[..., Any]) -> Iterator[type]:
    """The classes of ours that a function returns, alone or in something else, by its annotation."""
    function = inspect.unwrap(function)
    names = re.findall(r"\w+", str(getattr(function, "__annotations__", {}).get("return", "")))
    for name in names:
        home = sys.modules[function.__module__]
        found = getattr(home, name, None)
        if found is None and name in _imported(home.__name__):
            there, called = _imported(home.__name__)[name]
            found = getattr(importlib.import_module(there), called)
        if isinstance(found, type) and found.__module__.split(".")[0] in ROOMS:
            yield found


CALLED_BY_THE_ENGINE = ("partitions", "seek", "open", "commit", "on_batch", "compact")
"""Methods of sources, partitions, sinks, writers, operators and states: what their siblings return goes to the engine."""

NOT_FOR_USERS = {
    "Change": "upgrade tells by it what becomes of an operator",
    "Aligned": "the engine asks shapes of windows for it",
    "FileSource": "Files gives one, of a class that has an entry",
    "JobStats": "for those who drive a session",
    "Part": "libraries ask aggregates for it",
    "View": "spark.batch takes it, and it has no verbs",
}
"""Classes that are returned all the same, and why they are not public."""


def _called(kind: type) -> Iterator[Callable[..., Any]]:
    """The public methods, and the getters of properties, of a class whose methods users call."""
    if any(hasattr(kind, name) for name in CALLED_BY_THE_ENGINE):
        return
    for name, member in inspect.getmembers_static(kind):
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(function):
            yield function


def reached() -> set[type]:
    """The classes of all that users can be given: by public functions, by methods, and by methods of what those return."""
    todo: list[Any] = [value for value in EVERYTHING.values() if inspect.isfunction(value) or isinstance(value, type)]
    found: set[type] = set()
    while todo:
        value = todo.pop()
        for function in [value] if inspect.isfunction(value) else _called(value):
            new = set(_returned(function)) - found
            found |= new
            todo += new
    return found


def test_whatever_users_can_be_given_is_public() -> None:
    public = list(EVERYTHING.values())
    assert {kind.__name__ for kind in reached() if kind not in public} == NOT_FOR_USERS.keys()


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function but those of functions in it, which run later."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield child
            yield from _own(child)


@cache
def _read(function: FunctionType, of: type | None) -> tuple[bool, list[tuple[Any, type | None]]]:
    """Of a function of the class `of`: True if it raises GraphError; what it calls, if that can be read, and of which class."""
    home = function.__module__
    raises, calls = False, []

    def named(node: ast.AST) -> Any:
        if not isinstance(node, ast.Name):
            return None
        there, called = _imported(home).get(node.id, (home, node.id))
        return of if node.id in ("self", "cls") else getattr(sys.modules.get(there), called, None)

    for node in _own(ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]):
        if isinstance(node, ast.Raise) and node.exc is not None:
            raises |= "GraphError(" in ast.unparse(node.exc)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_what = node.func.value.func if isinstance(node.func.value, ast.Call) else node.func.value
            above = getattr(of_what, "id", None) == "super" and of is not None
            owner = of.__mro__[1] if above and of is not None else named(of_what)
            calls.append((getattr(owner, node.func.attr, None), owner if isinstance(owner, type) else None))
        elif isinstance(node, ast.Call):
            calls.append((named(node.func), None))
    return raises, calls


def refuses(verb: Any, of: type | None) -> bool:
    """True if a verb, or what it calls while the program is built, raises GraphError by a statement of its own.

    Names that are taken do not count: that is so of all verbs. Nor does what other verbs refuse, which say so themselves.
    """
    todo: list[tuple[Any, type | None]] = [(verb, of)]
    seen: set[Any] = set()
    while todo:
        function, of = todo.pop()
        if isinstance(function, type):
            begins = [inspect.getattr_static(function, name, None) for name in ("__post_init__", "__init__")]
            function, of = begins[0] or begins[1], function
        given = getattr(function, "__func__", function)
        function = inspect.unwrap(given)
        if getattr(given, "__qualname__", "").startswith("Changes.") and not function.__qualname__.startswith(
            "Changes."
        ):
            of = falkirk.Columns  # by a record of signs: it is the verb of columns, of rows()
        if not inspect.isfunction(function) or not Path(inspect.getfile(function)).is_relative_to(ROOT):
            continue
        if (function, of) not in seen:
            seen.add((function, of))
            raises, calls = _read(function, of)
            if raises:
                return True
            todo += [each for each in calls if isinstance(each[0], type) or each[0] not in EVERYTHING.values()]
    return False


MAKE_SOUND_LOOPS = {"graph.components", "graph.k_core", "graph.strong_components"}
"""Functions whose own loops would be refused if they were none."""


def test_each_verb_that_refuses_something_says_what() -> None:
    found = {
        name: "Raises:" in (inspect.getdoc(value) or "")
        for name, value in EVERYTHING.items()
        if name not in VERBS and refuses(value, EVERYTHING.get(name.rpartition(".")[0]))
    }
    assert len(found) > 140
    assert {name for name, says in found.items() if not says} == MAKE_SOUND_LOOPS


def test_the_pages_in_the_repository_are_those_of_the_docstrings() -> None:
    """Otherwise run scripts/reference_pages.py."""
    made = subprocess.run(
        [sys.executable, "scripts/reference_pages.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stdout + made.stderr
    text = "".join(page.read_text() for page in (ROOT / "docs" / "names").glob("*.md"))
    shown = [value for name, value in EVERYTHING.items() if f"# falkirk.{name}\n" in text]
    missing = [name for name, value in EVERYTHING.items() if value not in shown and not isinstance(value, ModuleType)]
    assert missing == []


BUILD = """
import json, sys
from sphinx.application import Sphinx
app = Sphinx("docs", "docs", sys.argv[1], sys.argv[1] + "/trees", "dummy", warningiserror=True, status=None)
app.build()
json.dump([app.statuscode, *app.env.domaindata["py"]["objects"]], sys.stdout)
"""


@pytest.mark.check
def test_the_site_is_built_without_warnings_and_its_reference_names_everything(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", BUILD, tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    status, *names = json.loads(done.stdout)
    assert status == 0, done.stderr
    shown = [
        value for name, value in EVERYTHING.items() if f"falkirk.{name}" in names
    ]  # a verb once, of all that inherit it
    missing = [name for name, value in EVERYTHING.items() if value not in shown and not isinstance(value, ModuleType)]
    assert missing == []


def run(test: doctest.DocTest) -> str:
    """The complaints about the examples; empty if all is well."""
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    return "".join(said)


@pytest.mark.parametrize(
    "name", [name for name, value in EVERYTHING.items() if not isinstance(value, int | ModuleType) and examples(value)]
)
def test_example_of_a_public_name_needs_falkirk_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = examples(EVERYTHING[name])
    assert not run(doctest.DocTest(found, {"falkirk": falkirk}, name, None, None, None))


def _runs(value: Any) -> bool:
    return not isinstance(value, int | ModuleType) and "falkirk.run(" in "".join(e.source for e in examples(value))


TALKS_TO_IT = {"Listen", "Memory"}
"""Examples that need the very source or sink which is in the dataflow."""


@pytest.mark.check
@pytest.mark.parametrize(
    "name", [name for name, value in EVERYTHING.items() if _runs(value) and name not in TALKS_TO_IT]
)
def test_example_holds_when_its_dataflow_has_travelled_to_another_process(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does with several workers: functions within functions then are copies, with copies of what they name."""

    def travel(program: Any, *args: Any, **options: Any) -> Any:
        return here(unpacked(packed(program)), *args, **options)

    here = falkirk.run
    monkeypatch.setattr(falkirk, "run", travel)
    monkeypatch.chdir(tmp_path)
    found = examples(EVERYTHING[name])
    assert not run(doctest.DocTest(found, {"falkirk": falkirk, "__name__": "__main__"}, name, None, None, None))


def modules() -> list[str]:
    """The modules with examples."""
    found = []
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            if ">>>" in file.read_text():
                found.append(".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    return found


@pytest.mark.parametrize("name", modules())
def test_other_examples_hold_in_their_module(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    shown = {inspect.getdoc(value) for value in EVERYTHING.values() if not isinstance(value, ModuleType)}
    tests = [
        each
        for each in doctest.DocTestFinder().find(module, name)
        if inspect.cleandoc(each.docstring or "") not in shown
    ]
    assert not "".join(run(each) for each in tests if each.examples)
