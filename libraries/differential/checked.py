"""Vectorised calls of user functions, with the results of calls record by record.

NumPy's integers wrap round at 64 bits and lose digits as floats; Python's do neither. So a function gets arrays that look at
each operation first. Where its result may differ from Python's the function is called for each record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_DIGITS = 1 << 53
"""Integers up to this are floats without loss."""

_EDGE = float(2**63 - 2**12)
"""Bound on floats: results below it are below 2**63 as integers."""

_GROWING: frozenset[np.ufunc] = frozenset(
    {np.add, np.subtract, np.multiply, np.negative, np.absolute, np.square, np.left_shift, np.power}
)
_DIVIDING: frozenset[np.ufunc] = frozenset({np.floor_divide, np.remainder, np.fmod, np.divmod})
_SAFE: frozenset[np.ufunc] = frozenset(
    {
        *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
        *(np.minimum, np.maximum, np.fmin, np.fmax, np.sign, np.positive, np.right_shift),
        *(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert),
        *(np.logical_and, np.logical_or, np.logical_xor, np.logical_not),
    }
)


class WouldDiffer(Exception):
    """Error: an operation on arrays may give another result than Python's."""


def over_columns(function: Callable[..., Any], *columns: Any) -> Any:
    """Result of `function` on columns; NotImplemented to ask for calls by record.

    >>> over_columns(lambda key, value: value * value, np.array([1, 2]), np.array([3, 4])).tolist()
    [9, 16]
    >>> over_columns(lambda key, value: value * value, np.array([1, 2]), np.array([3, 4_000_000_000]))
    NotImplemented
    """
    with np.errstate(all="ignore"):
        try:
            found = function(*map(_given, columns))
        except (WouldDiffer, OverflowError):
            return NotImplemented
    if isinstance(found, tuple):
        return tuple(map(_bare, found))
    return _bare(found)


class _Checked(np.ndarray[Any, Any]):
    """64-bit integers; an operation raises `WouldDiffer` unless sure to match Python."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        inputs = tuple(map(_bare, inputs))
        if "out" in kwargs:
            kwargs["out"] = tuple(map(_bare, kwargs["out"]))
        if any(map(_is_numbers, inputs)):
            _check(ufunc, method, inputs, kwargs)
        found = getattr(ufunc, method)(*inputs, **kwargs)
        return tuple(map(_checked, found)) if isinstance(found, tuple) else _checked(found)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _checked(super().__array_function__(function, types, args, kwargs))


def _is_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iub"


def _check(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if ufunc in _SAFE and method == "__call__":
        return
    if all(np.asarray(each).dtype.kind == "b" for each in inputs):  # NumPy's sums of truth values are no numbers
        raise WouldDiffer
    if any(isinstance(each, float | np.floating) or _is_floats(each) for each in inputs):
        # Python makes floats of integers, as NumPy does; but `//` and `**` come by other ways to the last digit.
        if ufunc not in _GROWING or ufunc is np.power:
            raise WouldDiffer
        return
    if ufunc in _DIVIDING:
        by = np.asarray(inputs[1])
        if not by.all() or (by == -1).any():
            raise WouldDiffer
        return
    if ufunc in (np.left_shift, np.power):
        least, greatest = _range(inputs[1])
        if least < 0 or greatest > 63:
            raise WouldDiffer
        if ufunc is np.left_shift:
            ufunc, inputs = np.multiply, (inputs[0], np.power(2.0, inputs[1]))
    elif ufunc not in _GROWING:
        if any(max(map(abs, _range(each))) > _DIGITS for each in inputs):
            raise WouldDiffer
        return
    if method == "__call__" and ufunc in (np.add, np.subtract, np.multiply) and len(inputs) == 2:
        (low, high), (least, greatest) = map(_range, inputs)
        if ufunc is np.multiply:
            ends = [low * least, low * greatest, high * least, high * greatest]
        elif ufunc is np.add:
            ends = [low + least, high + greatest]
        else:
            ends = [low - greatest, high - least]
        if max(map(abs, ends)) < _EDGE:
            return
    floats = [np.asarray(each, np.float64) for each in inputs]
    found = getattr(ufunc, method)(*floats, **(kwargs | {"dtype": np.float64, "out": None}))
    if not (np.abs(found) < _EDGE).all():
        raise WouldDiffer


def _is_floats(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _range(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, np.ndarray):
        return value, value
    return (value.min().item(), value.max().item()) if value.size else (0, 0)


def _given(column: Any) -> Any:
    """Column as passed to a function: read-only, since it is shared."""
    if not isinstance(column, np.ndarray):
        return column
    checked = column.view(_Checked)
    checked.flags.writeable = False
    return checked


def _checked(value: Any) -> Any:
    return value.view(_Checked) if isinstance(value, np.ndarray) and value.dtype.kind in "iub" else value


def _bare(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, _Checked) else value
