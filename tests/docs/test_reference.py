"""Every public name is in the reference, with an example, and every example in a docstring prints what it says."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import falkirk
from runtime.program import packed, unpacked

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("timely", "recovery", "monitor", "runtime", "libraries", "falkirk", "bench", "examples")
LIBRARIES = ("agg", "differential", "graph", "lindi", "spark")
VERBS = {
    "Columns",
    "Dataflow",
    "Keyed",
    "Stream",
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
    **dict.fromkeys(("Columns", "Keyed", "Stream", "agg"), "its methods have them"),
    **dict.fromkeys(("differential.Collection", "lindi.Groups", "lindi.Query", "lindi.Table"), "its methods have them"),
    **{f"spark.{name}": "docs/spark.md, which runs" for name in ("SparkError", "SparkOptions", "Stream", "batch")},
    "spark.register": "docs/tables.md: it needs a session of the user's",
    **{f"spark.{name}": "docs/spark.md, which runs" for name in ("sink", "source", "stop", "write")},
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
    """The public methods of a class in VERBS, also those that it inherits."""
    if name in VERBS:
        for method, function in inspect.getmembers(value, inspect.isfunction):
            if not method.startswith("_"):
                yield f"{name}.{method}", function


EVERYTHING = dict(public())
EVERYTHING |= {name: value for of, each in list(EVERYTHING.items()) for name, value in methods(of, each)}


def examples(value: Any) -> list[doctest.Example]:
    """The examples in a docstring. A number has that of `int`."""
    return doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")


def test_each_public_name_has_an_example_or_a_reason() -> None:
    assert {name for name, value in EVERYTHING.items() if not examples(value)} == ELSEWHERE.keys()


BUILD = """
import json, sys
from sphinx.application import Sphinx
app = Sphinx("docs", "docs", sys.argv[1], sys.argv[1] + "/trees", "dummy", warningiserror=True, status=None)
app.build()
json.dump([app.statuscode, *app.env.domaindata["py"]["objects"]], sys.stdout)
"""


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
