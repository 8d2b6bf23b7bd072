"""Master and settings of a program started by `spark-submit`, from its Java."""

from __future__ import annotations

import os
from functools import cache

from libraries.spark.setup.defaults import holds

VARIABLE = "PYSPARK_GATEWAY_PORT"
"""Environment variable of such a program: the port of its Java."""

_OF_THE_PROGRAM = (
    "spark.app.",
    "spark.submit.",
    "spark.repl.",
    "spark.driver.port",
    "spark.driver.blockManager.port",
    "spark.ui.port",
)
"""Settings of the submitted application, irrelevant to regions' own Spark."""

_SHIPPED = "spark.submit.pyFiles"
"""Setting for `--py-files`."""


def submitted() -> bool:
    """True if `spark-submit` has started this process or an ancestor of it."""
    return VARIABLE in os.environ


def master() -> str:
    """Master given to `spark-submit`; `local[*]` for a program started otherwise."""
    return settings().get("spark.master", "local[*]")


def settings() -> dict[str, str]:
    """Settings of the submitted program; empty for a program started otherwise.

    They are those in files and on the command line.
    """
    if not submitted():
        return {}
    given = _read(os.environ[VARIABLE])
    return {name: value for name, value in given.items() if name == _SHIPPED or not name.startswith(_OF_THE_PROGRAM)}


def held() -> dict[str, str]:
    """Settings of the submitted program for a job's own Spark.

    They are those that hold (`defaults.holds`), and the files that are shipped to its tasks.
    """
    return {name: value for name, value in settings().items() if name == _SHIPPED or holds(name)}


@cache
def _read(port: str) -> dict[str, str]:
    """Settings of the Java at a port.

    It is not begun to do anything, and holds no executor for this.
    """
    from pyspark.conf import SparkConf
    from pyspark.core.context import SparkContext
    from pyspark.java_gateway import launch_gateway

    known = SparkContext._gateway
    gateway = launch_gateway() if known is None else known  # type: ignore[no-untyped-call]
    try:
        return dict(SparkConf(_jvm=gateway.jvm).getAll())
    finally:
        if known is None:
            gateway.close()
