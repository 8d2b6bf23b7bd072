"""The Spark to which `spark-submit` has submitted this program: its master and settings, as its Java knows them."""

from __future__ import annotations

import os
from functools import cache

from libraries.spark.process.defaults import holds

VARIABLE = "PYSPARK_GATEWAY_PORT"
"""The environment variable that such a program has: the port of its Java."""

_OF_THE_PROGRAM = (
    "spark.app.",
    "spark.submit.",
    "spark.repl.",
    "spark.driver.port",
    "spark.driver.blockManager.port",
    "spark.ui.port",
)
"""Settings of the one application that was submitted, which is another one than that of a job's regions."""

_SHIPPED = "spark.submit.pyFiles"
"""The setting in which `--py-files` stands."""


def submitted() -> bool:
    """True if `spark-submit` has started this process, or one that this one comes from."""
    return VARIABLE in os.environ


def master() -> str:
    """The master that was given to `spark-submit`; `local[*]` where this program was not submitted."""
    return settings().get("spark.master", "local[*]")


def settings() -> dict[str, str]:
    """The settings that the program was submitted with, those in files and on the command line; none if it was not."""
    if not submitted():
        return {}
    given = _read(os.environ[VARIABLE])
    return {name: value for name, value in given.items() if name == _SHIPPED or not name.startswith(_OF_THE_PROGRAM)}


def held() -> dict[str, str]:
    """Those of them that hold for a Spark of a job's own (`defaults.holds`), and what is shipped to its tasks."""
    return {name: value for name, value in settings().items() if name == _SHIPPED or holds(name)}


@cache
def _read(port: str) -> dict[str, str]:
    """The settings of the Java that listens at a port. It is not begun to do anything, and holds no executor for this."""
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
