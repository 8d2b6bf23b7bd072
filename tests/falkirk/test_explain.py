"""`falkirk explain`: what it says of every example, and of a program that can go wrong in each way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import falkirk_command

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

PROMISED = {
    "family": {"sink-1": "repeating"},
    "flights": dict.fromkeys(("carriers", "routes", "stranded", "causes", "knock-on", "history"), "gap"),
    "loop": {"lengths": "gap", "sink-1": "repeating"},
    "mixed_policies": {"tally": "precise", "news": "repeating"},
    "orders": {"shops": "gap", "best": "gap"},
    "payments": {
        **{"booked": "precise", "shown": "repeating", "best-out": "precise", "alarms-out": "repeating"},
        "visitors-out": "convergent",
    },
    "pagerank": {"sink-1": "repeating"},
    "tolls": {"totals": "gap", "windows": "gap", "late": "gap"},
    "trades": {"sink-1": "repeating"},
    "wordcount": {"sink-1": "repeating"},
}

PROGRAM = """
import random
from pathlib import Path
from falkirk import Callback, Console, Dataflow, FileSink, Iterable, LogHistory, Operator

class Ticks:
    rereadable = True
    def partitions(self, worker, workers):
        return []

def build(out="out"):
    flow = Dataflow("all grades")
    words = flow.source("words", Iterable(["a"]))
    words.to(FileSink(out), name="files")
    ticks = flow.source("ticks", Ticks())
    ticks.to(Callback(print), name="ticked")
    ticks.key_by(str).count(over="time", name="each").records().to(Callback(print), name="per epoch")
    dice = words.unary("dice", Operator).policy(LogHistory()).nondeterministic("it rolls dice")
    dice.to(FileSink(out + "2"), name="rolled")
    return flow
"""


def promised(program: Path) -> dict[str, str]:
    code, said = falkirk_command("explain", str(program), "--json")
    assert code == 0, said
    return {each["output"]: each["any"] for each in json.loads(said)}


@pytest.mark.parametrize("example", PROMISED)
def test_what_is_promised_of_every_example(example: str) -> None:
    assert promised(EXAMPLES / f"{example}.py") == PROMISED[example]


def test_no_example_is_left_out() -> None:
    programs = {path.stem for path in EXAMPLES.glob("*.py") if "def build(" in path.read_text()}
    assert set(PROMISED) == programs


def test_reason_blame_and_what_would_mend_it_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text(PROGRAM)
    assert promised(Path("app.py")) == {
        "files": "precise",
        "ticked": "convergent",
        "per epoch": "divergent",
        "rolled": "divergent",
    }
    code, said = falkirk_command("explain", "app.py")
    assert code == 0
    assert said.splitlines()[0].split("  ")[0] == "output"
    for text in (
        "per epoch: divergent, for count 'each' (app.py:17): it goes by epochs, and source 'ticks' may divide them",
        "convergent, for source 'ticks' (app.py:15)",
        "rolled: divergent, for unary 'dice' (app.py:18): its state comes back by doing all again",
        "it rolls dice",
        "To mend it, give it Lazy(), which saves what it has become.",
        "precise: the output of a run in which nothing failed",
    ):
        assert text in " ".join(said.split()), said


def test_operators_that_repeat_over_batches_alone_are_named_with_the_stream(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(
        "import falkirk\n"
        'flow = falkirk.Dataflow("batches")\n'
        'spread = flow.source("in", falkirk.Iterable([1])).exchange(by=str, name="spread")\n'
        'spread.map_batches(sorted, name="sorted").to(falkirk.FileSink("out"), name="files")\n'
        'spread.map_batches(list, name="listed", repeats_over="record").to(falkirk.FileSink("out2"), name="others")\n'
    )
    assert promised(program) == {"files": "precise", "others": "precise"}
    said = " ".join(falkirk_command("explain", str(program))[1].split())
    assert "map_batches 'sorted'" in said
    assert "it repeats only over the same batches, and those of the exchange 'spread' may be divided otherwise" in said
    assert "'listed'" not in said


def test_program_without_an_output_is_told_so(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(
        'import falkirk\nflow = falkirk.Dataflow("mute")\nflow.source("in", falkirk.Iterable([1])).map(str)\n'
    )
    assert falkirk_command("explain", str(program)) == (0, "mute has no output: give it a sink or a capture.\n")


def test_eager_region_that_is_fed_one_epoch_is_noted(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(
        "import falkirk\nflow = falkirk.Dataflow('at once')\nwith flow.region('now', policy=falkirk.Eager()):\n"
        "    flow.source('in', falkirk.Iterable([1])).map(str).capture('out')\n"
    )
    code, said = falkirk_command("explain", str(program))
    assert code == 0
    assert "note: the source 'in'" in said


def test_program_that_cannot_have_a_store_is_refused_as_it_is_when_it_runs(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text('import falkirk\nflow = falkirk.Dataflow("mute")\nflow.input("by hand").capture()\n')
    code, said = falkirk_command("explain", str(program))
    assert code == 1
    assert "fed by hand" in said
