"""Functions of users' own.

They may raise anything: StopIteration, which ends a loop of C code without a word, too.

`map`, `filter` and their like in itertools, and `iter(function, sentinel)`, take a StopIteration that comes out of their
function for the end of their input: a list made of them is short, and nobody hears of it. Comprehensions and `sorted`, `min`,
`max` and `functools.reduce` let it through; in a generator it becomes a RuntimeError.

So the syntax trees are searched for calls of the former. What they are given must be seen to be no function of a user's: a
builtin type or function, one of another library, or one that is defined in the packages, with a body that calls nothing
but such. A parameter, a local variable and an attribute of an object may hold a user's.
"""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial, reduce
from operator import itemgetter
from typing import Any

import polars as pl
import pytest

import falkirk
from libraries import lindi
from libraries.differential import from_changes as from_stream
from tests.test_architecture import Module, imports, modules, report
from timely.errors import PACKAGES, FalkirkError, GraphError

# ----------------------------------------------------------------------------------------------------------
# The search

PLACE_OF_FUNCTION = {
    **dict.fromkeys(("map", "filter", "filterfalse", "starmap", "takewhile", "dropwhile"), 0),
    **dict.fromkeys(("accumulate", "groupby"), 1),
}
"""What takes a StopIteration of its function for the end, and where that stands among its arguments."""

KEYWORDS = ("key", "func", "function")


@dataclass(frozen=True)
class Scope:
    """The functions and classes around a call, the innermost last."""

    around: tuple[ast.AST, ...]

    def binds(self, name: str) -> ast.AST | None:
        """What binds a name in a function around: a `def`, or the function whose parameter or variable it is."""
        for node in reversed(self.around):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                arguments = node.args
                every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                if any(each.arg == name for each in every):
                    return node
                for inner in ast.walk(node):
                    if isinstance(inner, ast.FunctionDef) and inner.name == name and inner is not node:
                        return inner
                    if isinstance(inner, ast.Name) and inner.id == name and isinstance(inner.ctx, ast.Store):
                        return node
        return None

    def method(self, name: str) -> ast.FunctionDef | None:
        """The method of a class around."""
        for node in reversed(self.around):
            if isinstance(node, ast.ClassDef):
                return next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == name), None)
        return None


def calls(node: ast.AST, around: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.Call, Scope]]:
    """Every call below `node`, with what stands around it."""
    if isinstance(node, ast.Call):
        yield node, Scope(around)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        around = (*around, node)
    for child in ast.iter_child_nodes(node):
        yield from calls(child, around)


@cache
def defined(module: Module) -> dict[str, ast.AST]:
    """The functions, classes and other names at the top of a module."""
    found: dict[str, ast.AST] = {}
    for node in ast.walk(ast.Module([*module.tree.body], [])):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.setdefault(node.id, node)
    found |= {node.name: node for node in module.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return found


@cache
def imported(module: Module) -> dict[str, str]:
    """Names that a module imports, and from where."""
    found = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: node.module or "" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.asname or alias.name).split(".")[0]: alias.name for alias in node.names}
    return found


def function_given(call: ast.Call) -> ast.expr | None:
    """The function that a call takes whose StopIteration would be lost; None if it takes none."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "itertools":
        name = call.func.attr
    if name == "iter" and len(call.args) == 2:
        return call.args[0]
    if name not in PLACE_OF_FUNCTION:
        return None
    place = PLACE_OF_FUNCTION[name]
    if len(call.args) > place:
        return call.args[place]
    return next((each.value for each in call.keywords if each.arg in KEYWORDS), None)


def doubt(module: Module, function: ast.expr, scope: Scope, depth: int = 3) -> str | None:
    """Why a function may be a user's, or call one; None if it is seen not to."""
    if isinstance(function, ast.Constant) and function.value is None:
        return None
    if isinstance(function, ast.IfExp):
        return doubt(module, function.body, scope, depth) or doubt(module, function.orelse, scope, depth)
    if isinstance(function, ast.Lambda):
        return of_body(module, function, Scope((*scope.around, function)), depth)
    if isinstance(function, ast.Call):  # itemgetter(0), partial(function, ...)
        inner = function.args if ast.unparse(function.func).endswith("partial") else []
        return doubt(module, function.func, scope, depth) or (doubt(module, inner[0], scope, depth) if inner else None)
    if isinstance(function, ast.Attribute):
        return of_attribute(module, function, scope, depth)
    if not isinstance(function, ast.Name):
        return f"{ast.unparse(function)} is looked up"
    bound = scope.binds(function.id)
    if isinstance(bound, ast.FunctionDef) and bound.name == function.id:
        return of_body(module, bound, Scope((*scope.around, bound)), depth)
    if bound is not None:
        return f"{function.id} is a parameter or a variable"
    own = defined(module).get(function.id)
    if isinstance(own, ast.ClassDef):
        return None
    if isinstance(own, ast.FunctionDef):
        return of_body(module, own, Scope((own,)), depth)
    if own is not None:
        return f"{function.id} is a variable of the module" if function.id not in FIXED else None
    if function.id in imported(module):
        return of_import(imported(module)[function.id], function.id, depth)
    return None if hasattr(builtins, function.id) else f"{function.id} is not known"


FIXED = {"_bits", "_packed", "_getsizeof", "_decode"}
"""Variables of modules that hold functions of other libraries."""

CONTAINERS = {"__getitem__", "__contains__", "get"}


def of_attribute(module: Module, function: ast.Attribute, scope: Scope, depth: int) -> str | None:
    base = function.value
    if isinstance(base, ast.Name) and base.id == "self":
        method = scope.method(function.attr)
        if method is None:
            return f"{ast.unparse(function)} is an attribute"
        return of_body(module, method, Scope((*scope.around, method)), depth)
    root = ast.unparse(base).split(".")[0]
    if root in imported(module) and scope.binds(root) is None:
        where = imported(module)[root]
        return None if where.split(".")[0] not in PACKAGES else of_import(f"{where}", function.attr, depth)
    named = isinstance(base, ast.Name) and scope.binds(base.id) is None
    if named and (hasattr(builtins, root) or root in defined(module)):
        return None
    return None if function.attr in CONTAINERS else f"{ast.unparse(function)} is an attribute"


def of_import(where: str, name: str, depth: int) -> str | None:
    other = modules().get(where)
    if where.split(".")[0] not in PACKAGES:
        return None
    found = defined(other).get(name) if other is not None else None
    if other is not None and isinstance(found, ast.FunctionDef):
        return of_body(other, found, Scope((found,)), depth)
    if other is not None and found is None and name in imported(other):
        return of_import(imported(other)[name], name, depth)
    return None


def of_body(module: Module, function: ast.AST, scope: Scope, depth: int) -> str | None:
    """Why the body of one of our functions may call a user's; its parameters' own methods are theirs to answer for."""
    if depth == 0:
        return None
    for call, inside in calls(function):
        called = call.func
        around = Scope((*scope.around[:-1], *inside.around))
        if isinstance(called, ast.Name):
            why = doubt(module, called, around, depth - 1)
        elif isinstance(called, ast.Attribute) and ast.unparse(called.value) == "self":
            why = of_attribute(module, called, around, depth - 1)
        else:
            continue
        if why is not None:
            return f"it calls {ast.unparse(called)}: {why}"
    return None


def test_no_function_of_a_users_is_where_its_stop_iteration_is_lost() -> None:
    problems = []
    for module in modules().values():
        for call, scope in calls(module.tree):
            given = function_given(call)
            if given is not None and (why := doubt(module, given, scope)) is not None:
                problems.append(f"{module.at(call)}: {ast.unparse(call)[:100]}: use a comprehension: {why}")
    assert not problems, report(problems)


@pytest.mark.parametrize(
    "text",
    [
        "def f(function, records):\n    return list(map(function, records))",
        "class A:\n    def f(self, records):\n        return list(filter(self._keep, records))",
        "def f(key, records):\n    return list(map(lambda r: (key(r), r), records))",
        "def f(key, records):\n    def g(r):\n        return key(r)\n    return list(map(g, records))",
        "from functools import partial\ndef f(key, records):\n    return list(map(partial(key, 1), records))",
        "import itertools\ndef f(key, records):\n    return itertools.groupby(records, key=key)",
        "def f(read):\n    return list(iter(read, None))",
        "class A:\n    def g(self, r):\n        return self._of(r)\n    def f(self, rs):\n        return list(map(self.g, rs))",
        "table = {}\ndef f(kind, records):\n    return list(map(table[kind], records))",
    ],
)
def test_search_finds(text: str) -> None:
    made = Module("timely.made", next(iter(modules().values())).path, ast.parse(text))
    assert any(
        function_given(call) is not None and doubt(made, function_given(call), scope)  # type: ignore[arg-type]
        for call, scope in calls(made.tree)
    )
    assert list(imports(made)) is not None


# ----------------------------------------------------------------------------------------------------------
# What loses it and what does not, as Python has it


def raising(*_: Any) -> Any:
    raise StopIteration


LOSE = {
    "map": lambda: list(map(raising, [1, 2])),
    "filter": lambda: list(filter(raising, [1, 2])),
    "filterfalse": lambda: list(itertools.filterfalse(raising, [1, 2])),
    "starmap": lambda: list(itertools.starmap(raising, [(1,), (2,)])),
    "takewhile": lambda: list(itertools.takewhile(raising, [1, 2])),
    "dropwhile": lambda: list(itertools.dropwhile(raising, [1, 2])),
    "accumulate": lambda: list(itertools.accumulate([1, 2], raising)),
    "groupby": lambda: list(itertools.groupby([1, 2], raising)),
    "iter": lambda: list(iter(raising, None)),
}

KEEP: dict[str, Callable[[], Any]] = {
    "sorted": lambda: sorted([1, 2], key=raising),
    "min": lambda: min([1, 2], key=raising),
    "max": lambda: max([1, 2], key=raising),
    "reduce": lambda: reduce(raising, [1, 2]),
    "list comprehension": lambda: [raising(x) for x in [1, 2]],
    "set comprehension": lambda: {raising(x) for x in [1, 2]},
    "generator": lambda: tuple(raising(x) for x in [1, 2]),
    "sum": lambda: sum(raising(x) for x in [1, 2]),
    "dict comprehension": lambda: {x: raising(x) for x in [1, 2]},
}


def test_python_loses_it_where_the_search_looks() -> None:
    assert LOSE.keys() == {*PLACE_OF_FUNCTION, "iter"}
    for lose in LOSE.values():
        assert len(lose()) < 2


@pytest.mark.parametrize("name", KEEP)
def test_python_keeps_it_elsewhere(name: str) -> None:
    with pytest.raises((StopIteration, RuntimeError)):
        KEEP[name]()


# ----------------------------------------------------------------------------------------------------------
# Every verb that takes a function


def at_seven(result: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function of one record, or of the last of several arguments, that lets a StopIteration out at 7."""

    def function(*arguments: Any) -> Any:
        if any(each == 7 or (isinstance(each, tuple) and 7 in each) for each in arguments):
            next(iter([]))
        return result(arguments[-1])

    return function


same, yes = at_seven(lambda x: x), at_seven(lambda x: True)


class Odd:
    """A class that is carried by functions of its own."""

    def __init__(self, n: int) -> None:
        self.n = n


falkirk.register(Odd, encode=lambda odd: same(min(odd.n, 7)), decode=Odd, name="odd of the tests")

Verb = Callable[[Any], Any]
VERBS: dict[str, Verb] = {
    "map": lambda s: s.map(same),
    "filter": lambda s: s.filter(yes),
    "flat_map": lambda s: s.flat_map(at_seven(lambda x: [x])),
    "inspect": lambda s: s.inspect(same),
    "branch": lambda s: s.branch(yes)[0],
    "exchange": lambda s: s.exchange(same),
    "key_by": lambda s: s.key_by(same),
    "map_values": lambda s: s.key_by(lambda n: n % 3).map_values(same),
    "reduce": lambda s: s.key_by(lambda n: 0).reduce(same),
    "fold": lambda s: s.key_by(lambda n: 0).fold(0, same),
    "fold order_by": lambda s: s.key_by(lambda n: 0).fold(0, lambda a, b: b, order_by=same),
    "process": lambda s: s.key_by(lambda n: 0).process(lambda key, value, timers: [same(value)]),
    "process on_timer": lambda s: s.key_by(lambda n: n).process(
        lambda key, value, timers: timers.set(timers.epoch + 1), lambda key, epoch, timers: [same(key)]
    ),
    "process order_by": lambda s: s.key_by(lambda n: 0).process(lambda key, value, timers: None, order_by=same),
    "window": lambda s: s.key_by(lambda n: 0).window(falkirk.Tumbling(5), time=same).count(),
    "window reduce": lambda s: s.key_by(lambda n: 0).window(falkirk.Tumbling(50), time=lambda n: n).reduce(same),
    "window fold": lambda s: s.key_by(lambda n: 0).window(falkirk.Tumbling(50), time=lambda n: n).fold(0, same),
    "session reduce": lambda s: s.key_by(lambda n: 0).window(falkirk.SessionWindow(5), time=lambda n: n).reduce(same),
    "map_batches": lambda s: s.map_batches(lambda batch: [same(x) for x in batch]),
    "columns": lambda s: s.map(lambda n: {"n": n}).to_columns().map_batches(
        lambda frame: pl.DataFrame({"n": [same(n) for n in frame["n"]]})
    ),
    "registered": lambda s: s.map(Odd).exchange(lambda odd: odd.n),
    "registered key": lambda s: s.map(lambda n: (n, Odd(n))).keyed().fold(0, lambda a, b: a + b.n),
    "lindi select": lambda s: lindi.Query(s).select(same),
    "lindi where": lambda s: lindi.Query(s).where(yes),
    "lindi select_many": lambda s: lindi.Query(s).select_many(at_seven(lambda x: [x])),
    "lindi order_by": lambda s: lindi.Query(s).order_by(same),
    "lindi top": lambda s: lindi.Query(s).top(3, same),
    "lindi least": lambda s: lindi.Query(s).min(same),
    "lindi greatest": lambda s: lindi.Query(s).max(same),
    "lindi aggregate": lambda s: lindi.Query(s).aggregate(same),
    "lindi group_by": lambda s: lindi.Query(s).group_by(same).count(),
    "lindi groups": lambda s: lindi.Query(s).group_by(lambda n: 0).select(lambda key, found: [same(n) for n in found]),
    "lindi join": lambda s: lindi.Query(s).join(lindi.Query(s), same, same, lambda a, b: a),
    "differential map": lambda s: from_stream(s.map(lambda n: (n, 1))).map(same).changes(),
    "differential filter": lambda s: from_stream(s.map(lambda n: (n, 1))).filter(yes).changes(),
    "differential flat_map": lambda s: from_stream(s.map(lambda n: (n, 1))).flat_map(at_seven(lambda x: [x])).changes(),
    "differential reduce": lambda s: (
        from_stream(s.map(lambda n: ((0, n), 1))).reduce(lambda key, group: [same(v) for v, _ in group]).changes()
    ),
    "differential join": lambda s: (
        from_stream(s.map(lambda n: (n, 1))).map(lambda n: (n, n))
        .join(from_stream(s.map(lambda n: (n, 1))).map(lambda n: (n, n)), select=same).changes()
    ),
}  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("verb", VERBS)
def test_no_record_is_lost_without_a_word(verb: str, workers: int) -> None:
    from runtime.session.cluster import Cluster

    flow = falkirk.Dataflow("stops")
    first = flow.source("numbers", falkirk.Iterable(range(40), epoch_every=20))
    VERBS[verb](first).capture("out")
    cluster = Cluster(flow, workers, None)
    try:
        with pytest.raises(FalkirkError):
            cluster.run()
    finally:
        for session in cluster.sessions:
            session.abort()


# ----------------------------------------------------------------------------------------------------------
# Functions that give something other than a value


async def awaited(*_: Any) -> bool:
    return False


async def awaited_many(*_: Any) -> Any:
    yield 1


def yielding(*_: Any) -> Any:
    yield 1


class Awaited:
    async def __call__(self, *_: Any) -> bool:
        return False

    async def method(self, *_: Any) -> bool:
        return False


NO_VALUES = [awaited, awaited_many, Awaited(), Awaited().method, partial(awaited, 1), partial(partial(Awaited(), 1), 2)]

TAKES: dict[str, Callable[[Any, Any], Any]] = {
    "map": lambda s, f: s.map(f),
    "filter": lambda s, f: s.filter(f),
    "inspect": lambda s, f: s.inspect(f),
    "branch": lambda s, f: s.branch(f)[0],
    "attempt": lambda s, f: s.attempt(f)[0],
    "exchange": lambda s, f: s.exchange(f),
    "key_by": lambda s, f: s.key_by(f),
    "map_values": lambda s, f: s.key_by(abs).map_values(f),
    "map_batches": lambda s, f: s.map_batches(f),
    "reduce": lambda s, f: s.key_by(lambda n: 0).reduce(f),
    "fold": lambda s, f: s.key_by(lambda n: 0).fold(0, f),
    "fold start": lambda s, f: s.key_by(lambda n: 0).fold(f, lambda a, b: b),
    "fold order": lambda s, f: s.key_by(lambda n: 0).fold(0, lambda a, b: b, order_by=f),
    "window": lambda s, f: s.key_by(lambda n: 0).window(falkirk.Tumbling(5), time=f),
    "window reduce": lambda s, f: s.key_by(lambda n: 0).window(falkirk.Tumbling(5), time=abs).reduce(f),
    "where": lambda s, f: lindi.Query(s).where(f),
    "order_by": lambda s, f: lindi.Query(s).order_by(f),
    "groups": lambda s, f: lindi.Query(s).group_by(abs).select(f),
    "differential": lambda s, f: from_stream(s).map(f),
    "differential filter": lambda s, f: from_stream(s).filter(f),
    "threshold": lambda s, f: from_stream(s).threshold(f),
}
MANY: dict[str, Callable[[Any, Any], Any]] = {
    "flat_map": lambda s, f: s.flat_map(f),
    "process": lambda s, f: s.key_by(abs).process(f),
    "process on_timer": lambda s, f: s.key_by(abs).process(lambda key, value, timers: None, f),
    "select_many": lambda s, f: lindi.Query(s).select_many(f),
    "differential flat_map": lambda s, f: from_stream(s).flat_map(f),
    "differential reduce": lambda s, f: from_stream(s).reduce(f),
}


@pytest.mark.parametrize("verb", [*TAKES, *MANY])
def test_a_function_that_gives_no_value_is_refused_where_it_is_given(verb: str) -> None:
    take = {**TAKES, **MANY}[verb]
    for function in NO_VALUES:
        flow = falkirk.Dataflow("awaits")
        with pytest.raises(GraphError, match=r"test_users_functions\.py:\d+: .*async def"):
            take(flow.source("numbers", falkirk.Iterable(range(4))), function)
    for each in (yielding, partial(yielding, 1)):
        flow = falkirk.Dataflow("yields")
        numbers = flow.source("numbers", falkirk.Iterable(range(4)))
        if verb in MANY:
            assert take(numbers, each) is not None
        else:
            with pytest.raises(GraphError, match=r"test_users_functions\.py:\d+: .*yields"):
                take(numbers, each)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("verb", ["map", "filter", "inspect", "branch", "attempt", "map_values", "where"])
def test_a_result_that_must_be_awaited_is_an_error(verb: str) -> None:
    flow = falkirk.Dataflow("awaits")
    TAKES[verb](flow.source("numbers", falkirk.Iterable(range(4))), lambda *values: awaited(*values)).capture("out")
    with pytest.raises(FalkirkError, match=r"failed.* gave a coroutine, which nobody awaits"):
        falkirk.run(flow)


def test_every_other_callable_is_taken() -> None:
    class Adding:
        def __call__(self, n: int) -> int:
            return n + 1

    flow = falkirk.Dataflow("all")
    numbers = flow.source("numbers", falkirk.Iterable(range(3)))
    for function in (
        abs,
        str,
        Adding(),
        Adding().__call__,
        partial(max, 1),
        lambda n: n,
        itemgetter(0),
        int.bit_length,
    ):
        assert numbers.map(function) is not None
