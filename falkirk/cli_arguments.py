"""The values of options of the command line, parsed."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from libraries.spark.setup.options import SparkOptions


MOST_WORKERS = 1024
"""Maximum number of workers: the number of key shards.

Further workers would have no keys; see `timely.data.routing.SHARDS`.
"""

LARGEST = 1 << 53
"""Largest number accepted by an option: integers up to 2**53 are exact as floats."""


MOST_SECONDS = 365 * 86_400.0
"""Longest wait accepted by an option, in seconds: one year."""


def finite(seconds: float | None) -> float | None:
    """`seconds`, refused if nan or infinite.

    nan passes every comparison of a range.
    """
    if seconds is not None and not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is not a number of seconds")
    return seconds


def spark_options(master: str, settings: list[str], start_limit: float | None = None) -> SparkOptions:
    """Spark options from `--on`, `--spark-conf KEY=VALUE` and `--start-limit`."""
    from libraries.spark.setup.options import SparkOptions

    pairs = [setting.partition("=") for setting in settings]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise typer.BadParameter(f"--spark-conf {name!r}: write KEY=VALUE")
    return SparkOptions(master=master, config=tuple((name, value) for name, _, value in pairs), start_limit=start_limit)


def parse_arguments(pairs: list[str]) -> dict[str, Any]:
    """The values of `--arg key=value`: JSON where they read as JSON, text otherwise.

    >>> parse_arguments(["n=3", "path=data/*.csv", "exact=true", 'zip="01234"'])
    {'n': 3, 'path': 'data/*.csv', 'exact': True, 'zip': '01234'}
    """
    arguments: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise typer.BadParameter(f"{pair!r} is not of the form key=value", param_hint="--arg")
        if key in arguments:
            raise typer.BadParameter(f"{key!r} is given twice", param_hint="--arg")
        try:
            arguments[key] = json.loads(value)
        except RecursionError:
            raise typer.BadParameter(
                f"the value of {key!r} is nested too deeply: put it into a file", param_hint="--arg"
            ) from None
        except ValueError:
            arguments[key] = value
    return arguments


def parse_size(text: str) -> int:
    """Size in bytes: 1000, 64kB, 256MB (decimal) or 256MiB, 1GiB (binary).

    Upper and lower case are the same.

    >>> parse_size("256MB"), parse_size("1.5 KiB")
    (256000000, 1536)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?\s*", text, re.IGNORECASE)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size such as 64MB or 1GiB", param_hint="--max-bytes")
    number, unit, binary = found.groups()
    size = float(number) * (1024 if binary else 1000) ** (" kmgt".index(unit.lower()) if unit else 0)
    if not 1 <= size <= LARGEST:
        raise typer.BadParameter(f"{text!r} is not from 1 byte to {LARGEST >> 40} TiB", param_hint="--max-bytes")
    return int(size)
