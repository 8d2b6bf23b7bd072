"""`falkirk prepare`: the class cache of Spark's Java, made once on a machine."""

from __future__ import annotations

import time

from rich.console import Console

from libraries.spark.setup.class_cache import cache_file, record
from libraries.spark.setup.java import find_java


def prepare_spark() -> int:
    """Create the class cache and print its path; exit code 0.

    Raises SparkError or OSError if it cannot be made.
    """
    console = Console(highlight=False, markup=False, soft_wrap=True)
    java, began = find_java(), time.monotonic()
    file = cache_file(java)
    if file.is_file():
        console.print(f"Spark's classes are recorded already, for Java {java}: {file}")
        return 0
    with console.status(f"Java {java.version} starts Spark once, and records what it loads ..."):
        record(java)
    size = file.stat().st_size / 1e6
    console.print(
        f"Spark's classes are recorded, for Java {java}: {file}, {size:,.0f} MB, {time.monotonic() - began:.0f} s"
    )
    return 0
