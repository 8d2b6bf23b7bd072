"""The functions of a program: what of them is seen, so what tells a changed program from the one that wrote a store."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import polars as pl
import pytest

import falkirk
from falkirk import agg
from timely.dataflow.functions import MOST, PYTHON, function_changes, functions_of
from timely.seen_functions import Functions


def module(source: str) -> dict[str, Any]:
    """A module of the user's."""
    made = sys.modules["app"] = types.ModuleType("app")
    made.__file__ = "app.py"
    exec(compile(textwrap.dedent(source), "app.py", "exec"), made.__dict__)
    return made.__dict__


def of_map(function: Callable[..., Any]) -> Functions:
    flow = falkirk.Dataflow()
    flow.source("numbers", falkirk.Iterable(range(3))).map(function, name="clean").capture("out")
    return functions_of(flow.graph)


def changes(before: str, after: str) -> list[str]:
    """What is said of a map, where `function` of one module has become that of the other."""
    try:
        return _changes(before, after)
    finally:
        del sys.modules["app"]


def _changes(before: str, after: str) -> list[str]:
    one, other = of_map(module(before)["function"]), of_map(module(after)["function"])
    assert function_changes(one, of_map(module(before)["function"])) == {}
    assert function_changes(other, one).keys() == function_changes(one, other).keys()
    return function_changes(one, other).get("clean", [])


CODE = ["the code of the function is another one"]

CHANGED = {
    "a constant": ("def function(x): return x + 1", "def function(x): return x + 2", CODE),
    "an operation": ("def function(x): return x + 1", "def function(x): return x - 1", CODE),
    "a name": ("def function(x): return abs(x)", "def function(x): return int(x)", CODE),
    "a method": ("def function(x): return x.upper()", "def function(x): return x.lower()", CODE),
    "a lambda": ("function = lambda x: x > 1", "function = lambda x: x >= 1", CODE),
    "of two arguments that are given by name": (
        "def function(x, *, a=1, b=1): return x * a - b",
        "def function(x, *, b=1, a=1): return x * b - a",
        CODE,
    ),
    "zero and its negative": ("def function(x): return x or 0.0", "def function(x): return x or -0.0", CODE),
    "True and 1": ("def function(x): return x or 1", "def function(x): return x or True", CODE),
    "a set": ("def function(x): return x in {'a', 'b'}", "def function(x): return x in {'a', 'c'}", CODE),
    "what is caught": (
        "def function(x):\n try: return int(x)\n except ValueError: return 0",
        "def function(x):\n try: return int(x)\n except TypeError: return 0",
        CODE,
    ),
    "a function within": (
        "def function(x):\n def inner(y): return y + 1\n return inner(x)",
        "def function(x):\n def inner(y): return y + 2\n return inner(x)",
        CODE,
    ),
    "a comprehension": ("def function(x): return [y + 1 for y in x]", "def function(x): return [y for y in x]", CODE),
    "a default": (
        "def function(x, n=1): return x + n",
        "def function(x, n=2): return x + n",
        ["the default n of the function was 1 and is 2"],
    ),
    "a default by name": (
        "def function(x, *, n=1): return x + n",
        "def function(x, *, n=2): return x + n",
        ["the default n of the function was 1 and is 2"],
    ),
    "a value that it closes over": (
        "def make(n): return lambda x: x + n\nfunction = make(1)",
        "def make(n): return lambda x: x + n\nfunction = make(1.0)",
        ["n of the function was 1 and is 1.0"],
    ),
    "a global": (
        "LIMIT = 1\ndef function(x): return x + LIMIT",
        "LIMIT = 2\ndef function(x): return x + LIMIT",
        ["LIMIT of the function was 1 and is 2"],
    ),
    "a function that it calls": (
        "def helper(x): return x + 1\ndef function(x): return helper(x)",
        "def helper(x): return x + 2\ndef function(x): return helper(x)",
        ["the code of helper of the function is another one"],
    ),
    "what another one is called": (
        "from math import floor as helper\ndef function(x): return helper(x)",
        "from math import ceil as helper\ndef function(x): return helper(x)",
        ["the code of helper of the function is another one"],
    ),
    "a partial function": (
        "from functools import partial\nfunction = partial(lambda n, x: x + n, 1)",
        "from functools import partial\nfunction = partial(lambda n, x: x + n, 2)",
        ["argument 0 of the function was 1 and is 2"],
    ),
    "a keyword of a partial function": (
        "from functools import partial\nfunction = partial(lambda x, n: x + n, n=1)",
        "from functools import partial\nfunction = partial(lambda x, n: x + n, n=2)",
        ["argument n of the function was 1 and is 2"],
    ),
    "a decorated function": (
        "from functools import cache\n@cache\ndef function(x): return x + 1",
        "from functools import cache\n@cache\ndef function(x): return x + 2",
        CODE,
    ),
    "what is decorated": (
        "def twice(f):\n def g(x): return f(f(x))\n return g\n@twice\ndef function(x): return x + 1",
        "def twice(f):\n def g(x): return f(f(x))\n return g\n@twice\ndef function(x): return x + 2",
        ["the code of f of the function is another one"],
    ),
    "an attribute of what is called": (
        "class Over:\n def __init__(self, n): self.n = n\n def __call__(self, x): return x > self.n\nfunction = Over(1)",
        "class Over:\n def __init__(self, n): self.n = n\n def __call__(self, x): return x > self.n\nfunction = Over(2)",
        ["n of the function was 1 and is 2"],
    ),
    "what is called": (
        "class Over:\n def __call__(self, x): return x > 1\nfunction = Over()",
        "class Over:\n def __call__(self, x): return x > 2\nfunction = Over()",
        ["the code of Over.__call__ is another one"],
    ),
    "a bound method": (
        "class Over:\n n = 1\n def is_(self, x): return x > self.n\nfunction = Over().is_",
        "class Over:\n n = 2\n def is_(self, x): return x > self.n\nfunction = Over().is_",
        ["Over.n was 1 and is 2"],
    ),
    "a method of a base": (
        "class Base:\n def n(self): return 1\nclass Own(Base):\n def __call__(self, x): return self.n()\nfunction = Own()",
        "class Base:\n def n(self): return 2\nclass Own(Base):\n def __call__(self, x): return self.n()\nfunction = Own()",
        ["the code of Base.n is another one"],
    ),
    "a class that it makes": (
        "class Pair:\n def __init__(self, x): self.x = (x, 1)\ndef function(x): return Pair(x)",
        "class Pair:\n def __init__(self, x): self.x = (x, 2)\ndef function(x): return Pair(x)",
        ["the code of Pair.__init__ is another one"],
    ),
    "a text, which may be a secret": (
        "WORD = 'open'\ndef function(x): return x + WORD",
        "WORD = 'sesame'\ndef function(x): return x + WORD",
        ["WORD of the function was a text (23fcc66ad7cf) and is a text (37881e7878f2)"],
    ),
    "a field of a frozen dataclass": (
        "from dataclasses import *\n@dataclass(frozen=True)\nclass C:\n n: int\nC_ = C(1)\ndef function(x): return C_.n",
        "from dataclasses import *\n@dataclass(frozen=True)\nclass C:\n n: int\nC_ = C(2)\ndef function(x): return C_.n",
        ["n of C_ of the function was 1 and is 2"],
    ),
    "a pattern": (
        "import re\nP = re.compile('a+')\ndef function(x): return P.match(x)",
        "import re\nP = re.compile('b+')\ndef function(x): return P.match(x)",
        ["P of the function was re.compile('a+', 32) and is re.compile('b+', 32)"],
    ),
    "code of Python's": ("function = str.upper", "function = str.lower", CODE),
    "code of C's": ("import math\nfunction = math.floor", "import math\nfunction = math.ceil", CODE),
}

ALIKE = {
    "lines": ("def function(x): return x + 1", "\n\n\ndef function(x):\n\n    return x + 1"),
    "text of documentation": (
        "def function(x): return x or None",
        "def function(x):\n 'Says what.'\n return x or None",
    ),
    "another text": ("def function(x):\n 'This.'\n return (x, None)", "def function(x):\n 'That.'\n return (x, None)"),
    "remarks and types": ("def function(x): return x + 1", "def function(x: int) -> int:\n # more\n return x + 1"),
    "its own name": ("def function(x): return x + 1", "def other(x): return x + 1\nfunction = other"),
    "names of variables": ("def function(x):\n y = x + 1\n return y", "def function(x):\n z = x + 1\n return z"),
    "what it does not look at": (
        "N = 1\ndef function(x): return x",
        "N = 2\ndef other(): return N\ndef function(x): return x",
    ),
    "lists and dictionaries, which functions may change": (
        "seen = []\ndef function(x): seen.append(x)",
        "seen = [1]\ndef function(x): seen.append(x)",
    ),
    "what it counts in a global": (
        "n = 0\ndef function(x):\n global n\n n += 1\n return n",
        "n = 7\ndef function(x):\n global n\n n += 1\n return n",
    ),
    "what it counts in a closure": (
        "def make(n):\n def f(x):\n  nonlocal n\n  n += 1\n  return n\n return f\nfunction = make(0)",
        "def make(n):\n def f(x):\n  nonlocal n\n  n += 1\n  return n\n return f\nfunction = make(7)",
    ),
    "paths": (
        "from pathlib import Path\nhere, log = Path('a'), '/tmp/a'\ndef function(x): return here, log",
        "from pathlib import Path\nhere, log = Path('b'), '/tmp/b'\ndef function(x): return here, log",
    ),
    "objects of the user's that are not called": (
        "class Client:\n pass\nclient = Client()\nclient.pid = 1\ndef function(x): return client.pid",
        "class Client:\n pass\nclient = Client()\nclient.pid = 2\ndef function(x): return client.pid",
    ),
}


@pytest.mark.parametrize(("before", "after", "said"), CHANGED.values(), ids=CHANGED)
def test_what_was_changed_is_seen(before: str, after: str, said: list[str]) -> None:
    assert changes(before, after) == said


@pytest.mark.parametrize(("before", "after"), ALIKE.values(), ids=ALIKE)
def test_what_makes_no_difference_or_may_differ_from_run_to_run_is_none(before: str, after: str) -> None:
    assert changes(before, after) == []


@dataclass(frozen=True)
class Rates:
    at: tuple[int, ...]


class Blocks(falkirk.Operator):
    few = 4

    def __init__(self, n: int) -> None:
        self.n = n

    def on_batch(self, ctx: Any, port: int, time: Any, batch: Any) -> None:
        ctx.send([x for x in batch if x in {"a", "b", "c", "d"}])


def program(n: int = 5, rates: Rates = Rates((1, 2))) -> falkirk.Dataflow:
    """Verbs of each house, whose functions are of each kind."""
    flow = falkirk.Dataflow("all")
    numbers = flow.source("numbers", falkirk.Iterable(lambda: range(n)))
    clean = numbers.map(lambda x: x + n, name="clean").filter(functools.partial(lambda a, b: a < b, 3), name="some")
    totals = clean.key_by(lambda x: x in {"a", "b", "c"}, name="by").sum(name="totals")
    totals.fold(list, lambda a, b: [*a, b, rates], name="fold").records().capture("folded")
    clean.exchange(by=lambda x: x % n, name="spread").unary("blocks", lambda: Blocks(n)).capture("blocks_out")
    clean.map(math.floor, name="floor").map_batches(sorted, name="sorted").inspect(print, name="look").capture("floors")
    timed = clean.key_by(abs, name="timed")
    timed.window(falkirk.Tumbling(n), time=lambda x: x, lateness=2, name="windows").count().capture("windows_out")
    table = flow.columns("table", falkirk.Batches([pl.DataFrame({"k": [1], "v": [2]})]))
    chosen = table.filter(pl.col("v") > n, name="chosen").with_columns(w=pl.col("v") * 2, name="wide")
    chosen.group_by("k").agg(t=agg.sum("w"), d=agg.n_unique("v"), name="grouped").capture("grouped_out")
    chosen.join(table, on="k", name="joined").capture("joined_out")
    return flow


def test_arguments_of_verbs_are_seen() -> None:
    before = functions_of(program().graph)
    found = function_changes(before, functions_of(program(7, Rates((1, 3))).graph))
    assert set(found) == {"clean", "spread", "fold", "blocks", "windows-lateness", "windows-count-1", "chosen"}
    assert found["clean"] == ["n of the function was 5 and is 7"]
    assert found["chosen"] == [
        'chosen of the function was [(col("v")) > (dyn int: 5)] and is [(col("v")) > (dyn int: 7)]'
    ]
    assert found["fold"] == ["at of rates of step of the operator was (1, 2) and is (1, 3)"]
    assert found["windows-count-1"] == ["length of event_shape of the operator was 5 and is 7"]


def test_nobody_is_told_of_lines_and_all_of_it_is_plain_data() -> None:
    before = functions_of(program().graph)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(before), type=Functions) == before
    assert not [
        place for found in before.of.values() for place, text in found.items() if __file__ in text or "0x" in text
    ]
    assert before.sites["clean"].startswith("map 'clean' (")


def test_a_program_is_the_same_each_time_also_after_it_has_run() -> None:
    flow = program()
    before = functions_of(flow.graph)
    falkirk.run(flow)
    assert functions_of(flow.graph) == before
    assert functions_of(program().graph).of == before.of


def test_a_program_is_the_same_in_every_process_and_after_a_journey() -> None:
    here = functions_of(program().graph).of
    code = (
        "import sys, msgspec, cloudpickle; from timely.dataflow.functions import functions_of\n"
        "build = cloudpickle.loads(sys.stdin.buffer.read())\n"
        "sys.stdout.buffer.write(msgspec.json.encode(functions_of(build().graph).of))"
    )
    this = sys.modules[__name__]
    for by_value in (False, True):
        if by_value:
            cloudpickle.register_pickle_by_value(this)
        try:
            data = cloudpickle.dumps(program)
        finally:
            if by_value:
                cloudpickle.unregister_pickle_by_value(this)
        for seed in ("1", "2"):
            result = subprocess.run(
                [sys.executable, "-c", code],
                cwd=Path(__file__).parents[3],
                env={"PYTHONHASHSEED": seed, "PATH": ""},
                input=data,
                capture_output=True,
                check=True,
            )
            assert msgspec.json.decode(result.stdout) == here


def test_code_of_another_version_of_python_is_not_compared_but_values_are() -> None:
    before = of_map(module("def make(n): return lambda x: x + n\nfunction = make(1)")["function"])
    after = of_map(module("def make(n): return lambda x: x - n\nfunction = make(2)")["function"])
    older = msgspec.structs.replace(before, python="cpython-310-O0")
    assert before.python == PYTHON
    assert function_changes(older, after) == {"clean": ["n of the function was 1 and is 2"]}
    assert function_changes(msgspec.structs.replace(before, scheme=0), after) == {}
    assert function_changes(None, after) == function_changes(before, None) == {}


def test_functions_that_call_a_thousand_others_are_looked_at_as_far_as_is_worth_it() -> None:
    lines = [f"def f{n}(x): return f{n + 1}(x)" for n in range(3000)]
    found = of_map(module("\n".join([*lines, "def f3000(x): return x", "function = f0"]))["function"]).of["clean"]
    assert 900 < len(found) <= MOST + 1


def test_functions_that_call_each_other_are_looked_at_once() -> None:
    found = of_map(module("def a(x): return b(x)\ndef b(x): return a(x)\nfunction = a")["function"]).of["clean"]
    assert list(found) == ["the function", "b of the function"]


def test_expressions_of_another_version_of_polars_are_not_compared() -> None:
    def build(n: int) -> Functions:
        flow = falkirk.Dataflow()
        table = flow.columns("table", falkirk.Batches([pl.DataFrame({"v": [2]})]))
        table.filter(pl.col("v") > n, name="chosen").capture("out")
        return functions_of(flow.graph)

    assert function_changes(build(1), build(2))
    assert not function_changes(msgspec.structs.replace(build(1), polars="0.1"), build(2))


def test_workers_of_one_job_may_have_other_values_but_no_other_code() -> None:
    source = "import os\ndef make(n): return lambda x: (x, n, os.getpid())\nfunction = make({})"
    one, other = (of_map(module(source.format(n))["function"]) for n in (1, 2))
    assert function_changes(one, other)
    assert function_changes(one, other, code=True) == {}
    edited = of_map(module("def make(n): return lambda x: (n, x)\nfunction = make(1)")["function"])
    assert function_changes(one, edited, code=True) == {"clean": CODE}


PLACES = {
    "numbers": ["parts of the source"],
    "clean": ["n of the function", "the function"],
    "some": ["argument 0 of the function", "the function"],
    "by": ["the function"],
    "totals": ["running of the operator"],
    "fold": [
        "Rates.__dataclass_fields__",
        "at of rates of step of the operator",
        "make of the operator",
        "running of the operator",
        "step of the operator",
    ],
    "spread": ["n of the key of input 0", "the key of input 0"],
    "blocks": ["n of the operator", "name of the operator", "the operator", "verb of the operator"],
    **{name: ["the function"] for name in ("floor", "sorted", "look", "timed")},
    "windows-times": ["datetimes of the operator", "time of the operator"],
    "windows-lateness": ["allowed of the operator", "length of shape of the operator"],
    "windows-count-1": [
        "length of event_shape of the operator",
        "merge of aggregate of the operator",
        "ordered of aggregate of the operator",
    ],
    "chosen": ["chosen of the function"],
    "wide": ["'w' of named of the function", "chosen of the function"],
    "grouped": [
        "changes of the operator",
        *(f"column of {name!r} of named of the operator" for name in "dt"),
        *(f"ddof of {name!r} of named of the operator" for name in "dt"),
        "keys of the operator",
        *(f"kind of {name!r} of named of the operator" for name in "dt"),
        "kind of the operator",
        "over of the operator",
    ],
    "joined": [f"{name} of the operator" for name in ("changes", "here", "how", "keys", "over", "suffix", "there")],
}


def test_what_verbs_keep_of_their_arguments_is_as_in_stores_that_there_are() -> None:
    """If this fails, stores that were written before would be refused: raise SCHEME, and write down what there is now."""
    of = functions_of(program().graph).of
    places = {name: sorted(place for place in found if not place.startswith("Blocks")) for name, found in of.items()}
    assert places == PLACES
