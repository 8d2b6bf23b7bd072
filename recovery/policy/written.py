"""Policies written as text, as in a program: `Batch(log_outputs=True)`.

The text is read, never run: the name of a policy, and literal arguments by their names.
"""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

from recovery.policy.policies import POLICIES
from recovery.policy.traits import Policy, interval
from timely.errors import GraphError

MOST_CHARACTERS = 200
"""Longest text of a policy."""

_MOST_EPOCHS = 1 << 53
_NAMED = {policy.__name__: policy for policy in POLICIES}


def policy_of_text(text: str) -> Policy:
    """Policy of a text.

    Raises GraphError, with what can be written, for any other text.

    >>> policy_of_text("Batch(log_outputs=True)"), policy_of_text('Lazy(every="500ms")'), policy_of_text("Eager")
    (Batch(log_outputs=True), Lazy(every='500ms', log_outputs=False), Eager())
    """
    name, arguments = _parsed(text)
    kind = _NAMED.get(name)
    if kind is None:
        raise GraphError(f"{name!r} is no policy; there are {', '.join(_NAMED)}")
    known = {each.name: each for each in dataclasses.fields(kind)}
    for given, value in arguments.items():
        if given not in known:
            there = f"it has {', '.join(known)}" if known else "it has none"
            raise GraphError(f"{name} has no argument {given!r}: {there}")
        if given == "every":
            epochs = interval(value).epochs
            if epochs is not None and epochs > _MOST_EPOCHS:
                raise GraphError(f"every={value}: give at most {_MOST_EPOCHS} epochs")
        elif given != "durable" and not isinstance(value, bool):
            raise GraphError(f"{given}={value!r}: it is True or False")
    return kind(**arguments)


def change_of_text(text: str) -> tuple[str, Policy]:
    """Region and policy of a text such as `circles=Batch()`.

    Nothing before the `=` is all that is in no region. Raises GraphError.

    >>> change_of_text("a=b=Lazy(every=5)"), change_of_text("=Ephemeral()")
    (('a=b', Lazy(every=5, log_outputs=False)), ('', Ephemeral()))
    """
    error: GraphError | None = None
    at = text.find("=")
    while at >= 0:
        try:
            return text[:at], policy_of_text(text[at + 1 :])
        except GraphError as found:  # a name may have the sign in it: the next one is tried, the first is blamed
            error = error or found
        at = text.find("=", at + 1)
    raise error or GraphError(
        f"{text[:MOST_CHARACTERS]!r}: write REGION=POLICY, such as circles=Batch(log_outputs=True)"
    )


def _parsed(text: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a policy's text."""
    if len(text) > MOST_CHARACTERS:
        raise GraphError(f"a policy is written in at most {MOST_CHARACTERS} characters, not {len(text):,}")
    try:
        found = ast.parse(text.strip(), mode="eval").body
        match found:
            case ast.Name(id=name):
                return name, {}
            case ast.Call(func=ast.Name(id=name), args=[], keywords=keywords) if len(
                {each.arg for each in keywords} - {None}
            ) == len(keywords):
                return name, {str(each.arg): ast.literal_eval(each.value) for each in keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    raise GraphError(
        f"{text!r} is not written as a policy is: a name, and arguments by theirs, such as Batch(log_outputs=True) or "
        'Lazy(every="2s")'
    )
