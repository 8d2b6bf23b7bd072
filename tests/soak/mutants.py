"""Mutants: the product with one small mistake in it, as a programmer could make it.

A mutant has a name that outlives changes elsewhere in its file: the function, and the smallest expression or statement that
differs, before and after. It is brought into a running process by giving the function other code, so that all who hold the
function have it.

Some changes mean nothing to recovery, and are not made: annotations, default values, decorators, texts (of errors, too),
`__repr__` and `__str__`, and what only tells the timeline of a job about it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add}
_TELLING = {"_note", "_event"}
"""Calls that only tell the timeline of a job."""
_TEXTS = {"__repr__", "__str__"}
"""Functions that make texts for people."""


@dataclass(frozen=True)
class Mutant:
    """`file` is relative to the repository, `function` a qualified name, `change` the text before and after."""

    file: str
    function: str
    change: str
    line: int
    head: int
    """The first line of the function."""
    make: Callable[[], Any]
    """Changes the tree, and gives what undoes it."""
    tree: ast.Module
    """The function alone, within its classes."""
    text: str
    """A digest of the function as it is: equal mutants of equal functions have equal fates."""

    @property
    def name(self) -> str:
        return f"{self.function}: {self.change}"


def mutants(file: str) -> list[Mutant]:
    """All mutants of a file, in the order of its lines."""
    found: list[Mutant] = []
    seen: Counter[str] = Counter()
    for function, body, tree, text in functions(file):
        for node, make, change in _changes(body):
            name = f"{function}: {change}"
            seen[name] += 1
            if seen[name] > 1:
                change += f"  (number {seen[name]})"
            line = node.target.lineno if isinstance(node, ast.comprehension) else node.lineno
            found.append(Mutant(file, function, change, line, body.lineno, make, tree, text))
    return sorted(found, key=lambda mutant: mutant.line)


def functions(file: str) -> Iterator[tuple[str, ast.FunctionDef, ast.Module, str]]:
    """(name, function, module of it alone, digest of its text) of all functions of a file but those that make texts."""
    source = (ROOT / file).read_text()
    lines = source.splitlines()
    for name, function, outer in _functions(ast.parse(source), ()):
        alone: ast.stmt = function
        for scope in reversed(outer):
            alone = ast.ClassDef(scope.name, [], [], [alone], [])
        text = "\n".join(_code_lines(function, lines))
        tree = ast.fix_missing_locations(ast.Module([_FUTURE, alone], []))
        yield name, function, tree, blake2b(text.encode(), digest_size=8).hexdigest()


def _code_lines(function: ast.FunctionDef, lines: list[str]) -> Iterator[str]:
    """Lines of a function without its docstring and comments: other words change no mutant's fate."""
    first, documented = function.body[0], ast.get_docstring(function) is not None
    words = range(first.lineno, (first.end_lineno or first.lineno) + 1) if documented else range(0)
    for number in range(function.lineno, (function.end_lineno or function.lineno) + 1):
        line = lines[number - 1].strip()
        if line and number not in words and not line.startswith("#"):
            yield line


_FUTURE = ast.parse("from __future__ import annotations").body[0]


def _functions(
    node: ast.AST, outer: tuple[ast.ClassDef, ...]
) -> Iterator[tuple[str, ast.FunctionDef, tuple[ast.ClassDef, ...]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and child.name not in _TEXTS:
            # Functions within it are changed with it.
            yield ".".join([*(scope.name for scope in outer), child.name]), child, outer
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, (*outer, child))


def _changes(function: ast.FunctionDef) -> Iterator[tuple[Any, Callable[[], Any], str]]:
    """(where, what makes the change, its text) of all changes of a function."""
    for parent, field, at, node in _places(function):
        for new in _variants(node):
            yield node, _put(parent, field, at, node, new), _difference(node, new)


def _places(root: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, Any]]:
    """All that stands in a function: (parent, field, place in a list, node); no annotations, defaults, decorators, texts."""
    for field, value in ast.iter_fields(root):
        if field in ("annotation", "returns", "decorator_list", "args") and not isinstance(root, ast.Call):
            continue
        for at, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr) or _only_tells(node):
                continue
            yield root, field, at, node
            if not isinstance(node, ast.Raise | ast.Assert):
                yield from _places(node)


def _only_tells(node: ast.AST) -> bool:
    """True if a statement or expression is about a text."""
    match node:
        case ast.Expr(ast.Call(ast.Attribute(_, name))) if name in _TELLING:
            return True
        case ast.IfExp(_, body, orelse):
            return _is_text(body) or _is_text(orelse)
    return False


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _variants(node: ast.AST) -> Iterator[ast.AST | None]:
    """The replacements of a node; None: nothing."""
    match node:
        case ast.Compare(left, [operator], [right]):
            yield ast.Compare(left, [_COMPARISONS[type(operator)]()], [right])
        case ast.Compare(left, [first, second], [middle, right]):
            yield ast.Compare(left, [_COMPARISONS[type(first)](), second], [middle, right])
            yield ast.Compare(left, [first, _COMPARISONS[type(second)]()], [middle, right])
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for at in range(len(values)):
                left = values[:at] + values[at + 1 :]
                yield left[0] if len(left) == 1 else ast.BoolOp(operator, left)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.Call(ast.Name(name), arguments, keywords) if name in _CALLS:
            yield ast.Call(ast.Name(_CALLS[name], ast.Load()), arguments, keywords)
            if len(arguments) > 1:
                yield from (each for each in arguments if not isinstance(each, ast.Starred))
        case ast.Call(ast.Name("reversed" | "sorted"), [inner], []):
            yield ast.Call(ast.Name("list", ast.Load()), [inner], [])
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() as value):
            yield ast.Constant(value + 1)
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS and not isinstance(left, ast.Constant):
            yield ast.BinOp(left, _OPERATORS[type(operator)](), right)
        case ast.IfExp(_, body, orelse):
            yield body
            yield orelse
        case ast.comprehension(target, source, [_, *_], asynchronous):
            yield ast.comprehension(target, source, [], asynchronous)
        case ast.If(test, body, orelse) if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Expr(ast.Constant()):
            return  # a docstring
        case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break() | ast.Raise():
            yield ast.Pass()
        case ast.Return(None):
            yield ast.Pass()
        case ast.Assign([ast.Attribute() | ast.Subscript(), *_]):
            yield ast.Pass()


def _put(parent: ast.AST, field: str, at: int | None, old: Any, new: Any) -> Callable[[], Any]:
    def put(node: Any) -> None:
        if at is None:
            setattr(parent, field, node)
        else:
            getattr(parent, field)[at] = node

    def make() -> Callable[[], None]:
        if not isinstance(new, ast.comprehension):
            ast.copy_location(new, old)
        put(new)
        ast.fix_missing_locations(parent)
        return lambda: put(old)

    return make


def _difference(old: ast.AST, new: ast.AST) -> str:
    if isinstance(old, ast.BoolOp) and not (isinstance(new, ast.BoolOp) and len(new.values) == len(old.values)):
        left = new.values if isinstance(new, ast.BoolOp) and new.op is old.op else [new]
        gone = next(value for value in old.values if not any(value is other for other in left))
        return f"{_text(old)} -> without {_text(gone)}"
    return f"{_text(old)} -> {_text(new)}"


def _text(node: Any) -> str:
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    if isinstance(node, ast.comprehension):
        return ast.unparse(ast.ListComp(ast.Name("..."), [node]))[5:-1].strip()
    return " ".join(ast.unparse(node).split())


# Into the running process


def as_it_is(mutant: Mutant) -> CodeType:
    """The code of the function without the mistake."""
    code = compile(mutant.tree, str(ROOT / mutant.file), "exec", dont_inherit=True)
    for part in mutant.function.split("."):
        code = next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == part)
    return code


def broken(mutant: Mutant) -> CodeType:
    """The code of the function with a `raise` before all else."""
    body: Any = mutant.tree.body[-1]
    while not isinstance(body, ast.FunctionDef):
        body = body.body[0]
    body.body.insert(0, ast.fix_missing_locations(ast.copy_location(ast.Raise(), body.body[0])))
    try:
        return as_it_is(mutant)
    finally:
        del body.body[0]


def _code(mutant: Mutant) -> CodeType:
    undo = mutant.make()
    try:
        return as_it_is(mutant)
    finally:
        undo()


@cache
def module_of(file: str) -> ModuleType:
    """The module that is that file, imported if it was not."""
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if name not in sys.modules and name.endswith(
        ".compiled"
    ):  # its loops as Python has them, or they could not be changed
        numba = importlib.import_module("numba")
        numba.config.DISABLE_JIT = True
        try:
            return importlib.import_module(name)
        finally:
            numba.config.DISABLE_JIT = False
    return importlib.import_module(name)


def function_of(mutant: Mutant) -> FunctionType:
    """The function, as the product has it."""
    found: Any = module_of(mutant.file)
    for part in mutant.function.split("."):
        found = inspect.getattr_static(found, part)
    if isinstance(found, property):
        found = found.fget if found.fset is None else found.fset
    found = getattr(found, "func", getattr(found, "__func__", found))
    return inspect.unwrap(found)  # type: ignore[return-value]


def code_of(mutant: Mutant) -> CodeType | None:
    """The mutated code; None if the function cannot have it: a change may take away all that it has of an outer one."""
    code = _code(mutant)
    return code if len(code.co_freevars) == len(function_of(mutant).__code__.co_freevars) else None


@contextlib.contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """The product is that mutant meanwhile."""
    function = function_of(mutant)
    before = function.__code__
    function.__code__ = _code(mutant)
    try:
        yield
    finally:
        function.__code__ = before
