"""The product with one rule broken, to see whether anybody notices.

A rule is broken where it is written: `Change` names a function and an expression or statement in it, as syntax. Line breaks,
comments and the names of local variables do not matter, `...` stands for any expression, and as the last argument of a call for
all that follow. `if x: ...`, `while x: ...` and `for x in y: ...` stand for the condition, or what is gone through, of that
statement. `Instead` puts another function in the place of a predicate.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import copy
import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
GONE = "<gone>"
"""As `new` of a change: a statement does nothing, a condition of several is left out."""

Bound = dict[str, ast.expr]
"""The meaning of the local variables of a pattern."""


@dataclass(frozen=True)
class Change:
    """In `owner.name` (a function, or a method or property of a class) `new` takes the place of `old`."""

    owner: Any
    name: str
    old: str
    new: str

    def make(self, patch: pytest.MonkeyPatch) -> None:
        """Change the product until `patch` is undone."""
        found = inspect.getattr_static(self.owner, self.name, None)
        wrap: Callable[[Any], Any] = lambda function: function  # noqa: E731
        if isinstance(found, property):
            wrap, found = property, found.fget
        elif isinstance(found, staticmethod):
            wrap, found = staticmethod, found.__func__
        if not isinstance(found, FunctionType):
            raise AssertionError(self._lost(None, []))
        tree = copy.deepcopy(getattr(found, "tree", None) or _tree(found))
        known = {*found.__globals__, *vars(builtins)}
        pattern = _Pattern(self.old, known)
        places = _places(tree, pattern)
        if len(places) != 1:
            raise AssertionError(self._lost(tree, places))
        _replace(tree, *places[0], 1 + len(pattern.more), self.new)
        scope: dict[str, Any] = {}
        module = ast.fix_missing_locations(ast.Module([tree], []))
        flags = __future__.annotations.compiler_flag
        exec(compile(module, inspect.getfile(found), "exec", flags=flags), found.__globals__, scope)
        made = scope[found.__name__]
        made.tree = tree  # for a second change of the same function
        patch.setattr(self.owner, self.name, wrap(made))

    def _lost(self, tree: ast.FunctionDef | None, places: list[Any]) -> str:
        """Says what to do where the rule is written in another way, or elsewhere."""
        owner = getattr(self.owner, "__qualname__", None) or self.owner.__name__
        there = f"{len(places)} times" if tree is not None else "not, for there is no such function"
        lines = [
            f"{self.old!r} stands {there} in {owner}.{self.name}.",
            "Name the function in which the rule stands now, and the one expression or statement there that makes it hold.",
        ]
        if tree is not None:
            source = {
                ast.unparse(node).split("\n")[0]: node
                for node in ast.walk(tree)
                if isinstance(node, ast.expr | ast.stmt)
            }
            close = difflib.get_close_matches(self.old, source, n=4, cutoff=0.5)
            lines += [f"  like it there: {text}" for text in close]
        lines += [f"  stands in: {place}" for place in _elsewhere(self.old)]
        return "\n".join(lines)


@dataclass(frozen=True)
class Instead:
    """In `owner.name` stands another function: for rules that have one of their own."""

    owner: Any
    name: str
    function: Callable[..., Any]

    def make(self, patch: pytest.MonkeyPatch) -> None:
        """Change the product until `patch` is undone."""
        assert callable(getattr(self.owner, self.name, None)), (
            f"{self.owner}.{self.name} is no function: name the predicate that the rule has now"
        )
        patch.setattr(self.owner, self.name, self.function)


def changed(changes: Sequence[Change | Instead], run: Callable[[], Any]) -> Any:
    """The result of `run` while the product is changed."""
    with pytest.MonkeyPatch.context() as patch:
        for change in changes:
            change.make(patch)
        return run()


@dataclass(frozen=True)
class Rule:
    """`says`: the rule, in short. `scenario` gives `right`, and something else, or an error, with `changes`."""

    says: str
    scenario: Callable[[], Any]
    right: Any
    changes: tuple[Change | Instead, ...]

    def holds(self) -> bool:
        """True if the scenario comes out right."""
        try:
            return bool(self.scenario() == self.right)
        except Exception:
            return False

    def check(self) -> None:
        """That the rule holds, and that somebody misses it."""
        assert self.scenario() == self.right
        assert not changed(self.changes, self.holds), f"nobody missed the rule: {self.says}"


class Rules(dict[str, Rule]):
    """The rules of a component, by name."""

    def add(self, name: str, says: str, scenario: Callable[[], Any], right: Any, *changes: Change | Instead) -> None:
        assert name not in self, f"there are two rules {name!r}"
        self[name] = Rule(says, scenario, right, changes)


# ---------------------------------------------------------------------------------- patterns


class _Pattern:
    """An expression, or statements that follow each other, with variables. `known` are the names that stand for themselves."""

    def __init__(self, text: str, known: set[str]) -> None:
        nodes = ast.parse(textwrap.dedent(text)).body
        first = nodes[0]
        self.node: ast.AST = first.value if isinstance(first, ast.Expr) and len(nodes) == 1 else first
        self.more: list[ast.stmt] = nodes[1:]
        self._known = known | {"self"}

    def fits(self, node: ast.AST, following: list[Any]) -> Bound | None:
        bound: Bound = {}
        return bound if self._same([self.node, *self.more], [node, *following[: len(self.more)]], bound) else None

    def _same(self, pattern: Any, node: Any, bound: Bound) -> bool:
        if isinstance(pattern, ast.Constant) and pattern.value is ...:
            return isinstance(node, ast.expr)
        if isinstance(pattern, ast.Name) and pattern.id not in self._known:
            if not isinstance(node, ast.Name) or node.id in self._known:
                return False
            return bound.setdefault(pattern.id, node).id == node.id  # type: ignore[attr-defined]
        if _is_header(pattern):
            names = ("test",) if isinstance(pattern, ast.If | ast.While) else ("target", "iter")
            return type(pattern) is type(node) and all(
                self._same(getattr(pattern, name), getattr(node, name), bound) for name in names
            )
        if isinstance(pattern, ast.AST):
            return type(pattern) is type(node) and all(
                self._same(value, getattr(node, field), bound)
                for field, value in ast.iter_fields(pattern)
                if field not in ("ctx", "kind", "type_comment")
                and not (field == "keywords" and _rest(getattr(pattern, "args", None)))
            )
        if isinstance(pattern, list) and isinstance(node, list):
            if _rest(pattern):
                pattern, node = pattern[:-1], node[: len(pattern) - 1]
            return len(pattern) == len(node) and all(map(lambda a, b: self._same(a, b, bound), pattern, node))
        return bool(pattern == node)


def _rest(arguments: Any) -> bool:
    last = arguments[-1] if isinstance(arguments, list) and arguments else None
    return isinstance(last, ast.Constant) and last.value is ...


def _is_header(node: Any) -> bool:
    return isinstance(node, ast.If | ast.While | ast.For) and ast.unparse(node.body) == "..."


Place = tuple[ast.AST, str, int | None, Bound]
"""Parent, its field, the place in a list, and the variables."""


def _matches(tree: ast.AST, pattern: _Pattern) -> Iterator[Place]:
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            for at, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                following = value[at + 1 :] if isinstance(value, list) and at is not None else []
                if isinstance(node, ast.AST) and (bound := pattern.fits(node, following)) is not None:
                    if not _is_header(pattern.node):
                        yield parent, field, at, bound
                    else:
                        yield node, "iter" if isinstance(node, ast.For) else "test", None, bound


def _places(tree: ast.AST, pattern: _Pattern) -> list[Place]:
    """All places that fit; those with the very names of the pattern, where there are some among several."""
    found = list(_matches(tree, pattern))
    named = [place for place in found if all(ast.unparse(there) == name for name, there in place[3].items())]
    return named if len(found) > 1 and named else found


class _Filled(ast.NodeTransformer):
    def __init__(self, bound: Bound) -> None:
        self._bound = bound

    def visit_Name(self, node: ast.Name) -> ast.Name:
        there = self._bound.get(node.id)
        return ast.Name(there.id, node.ctx) if isinstance(there, ast.Name) else node


def _replace(tree: ast.AST, parent: ast.AST, field: str, at: int | None, bound: Bound, count: int, new: str) -> None:
    if isinstance(parent, ast.Expr):  # a call that is a statement
        where, owner = next(
            (body.index(parent), body)
            for node in ast.walk(tree)
            for body in (getattr(node, "body", None), getattr(node, "orelse", None), getattr(node, "finalbody", None))
            if isinstance(body, list) and parent in body
        )
        owner[where : where + 1] = _statements("pass" if new is GONE else new, bound)
        return
    siblings = getattr(parent, field)
    if new is GONE:
        if at is None:
            raise AssertionError("nothing stands in the place of what goes: say what does")
        if isinstance(siblings[at], ast.stmt):
            siblings[at : at + count] = [ast.Pass()]
        else:  # a condition among others
            del siblings[at]
            if isinstance(parent, ast.BoolOp) and len(siblings) == 1:
                siblings.append(ast.Constant(isinstance(parent.op, ast.And)))
        return
    statements = _statements(new, bound)
    if at is None:
        setattr(parent, field, _expression(statements))
    elif isinstance(siblings[at], ast.stmt):
        siblings[at : at + count] = statements
    else:
        siblings[at] = _expression(statements)


def _statements(text: str, bound: Bound) -> list[ast.stmt]:
    return [_Filled(bound).visit(node) for node in ast.parse(textwrap.dedent(text)).body]


def _expression(statements: list[ast.stmt]) -> ast.expr:
    (statement,) = statements
    assert isinstance(statement, ast.Expr)
    return statement.value


def _tree(function: FunctionType) -> ast.FunctionDef:
    lines, first = inspect.getsourcelines(function)
    (tree,) = ast.parse(textwrap.dedent("".join(lines))).body
    assert isinstance(tree, ast.FunctionDef)
    tree.decorator_list = []
    ast.increment_lineno(tree, first - 1)
    return tree


def _elsewhere(old: str) -> Iterator[str]:
    """Functions of the product that hold a pattern."""
    for path in sorted(
        each for house in ("timely", "recovery", "monitor", "runtime") for each in (ROOT / house).rglob("*.py")
    ):
        module = ast.parse(path.read_text())
        known = {each.id for each in ast.walk(module) if isinstance(each, ast.Name) and each.id[:1].isupper()}
        pattern = _Pattern(old, known | set(vars(builtins)))
        for function in ast.walk(module):
            if isinstance(function, ast.FunctionDef) and next(_matches(function, pattern), None) is not None:
                yield f"{path.relative_to(ROOT)}:{function.lineno}: {function.name}"
