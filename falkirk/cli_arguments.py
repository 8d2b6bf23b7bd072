"""What the values of options of the command line mean."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from libraries.spark.session import SparkOptions


def spark_options(master: str, settings: list[str]) -> SparkOptions:
    """The Spark that `--on` names, with what `--spark-conf KEY=VALUE` sets."""
    from libraries.spark.session import SparkOptions

    pairs = [setting.partition("=") for setting in settings]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise typer.BadParameter(f"--spark-conf {name!r}: write KEY=VALUE")
    return SparkOptions(master=master, config=tuple((name, value) for name, _, value in pairs))


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
        except ValueError:
            arguments[key] = value
    return arguments


def parse_size(text: str) -> int:
    """Bytes: 1000, 64kB, 256MB (decimal units) or 256MiB, 1GiB (binary ones); upper and lower case are the same.

    >>> parse_size("256MB"), parse_size("1.5 KiB")
    (256000000, 1536)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?\s*", text, re.IGNORECASE)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size such as 64MB or 1GiB", param_hint="--max-bytes")
    number, unit, binary = found.groups()
    size = float(number) * (1024 if binary else 1000) ** (" kmgt".index(unit.lower()) if unit else 0)
    if size < 1:
        raise typer.BadParameter("at least one byte must be allowed", param_hint="--max-bytes")
    return int(size)
