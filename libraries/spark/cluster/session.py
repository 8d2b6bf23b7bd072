"""Spark cluster for the workers of a job: session, free task slots, shipped code."""

from __future__ import annotations

import math
import os
import secrets
import threading
import weakref
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import timely
from libraries.spark.cluster import meeting, start
from libraries.spark.errors import SparkError
from libraries.spark.setup.class_cache import options_to_use
from libraries.spark.setup.java import find_java, home_for_spark
from libraries.spark.setup.options import SparkOptions, check_master, environment, open_session, settings
from libraries.spark.setup.submitted import submitted
from libraries.spark.versions import check_version, installed
from runtime.folders.scratch import Scratch
from timely.errors import PACKAGES

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

On: TypeAlias = "SparkSession | SparkOptions | str"
"""Cluster of a job: an existing session, or a master (with options) for a new one."""

_BARRIER = {
    # A stage whose tasks do not fit is refused by Spark at once, should an executor be lost in the wrong moment.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "1",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.dynamicAllocation.enabled": "false",
    # Tasks that are not wanted any more end at once: the next attempt needs their place.
    "spark.python.task.killTimeout": "1s",
}
_EXECUTOR_SECONDS = 300.0
"""Default seconds to wait for one more executor.

A cluster may have to find machines first.
"""

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}

_shipped: weakref.WeakKeyDictionary[SparkContext, Path] = weakref.WeakKeyDictionary()


class SparkCluster:
    """Running Spark for cluster tasks; `close` ends it if it was started here.

    Raises:
        SparkError: if there is no Java, the master does not answer, or the session cannot run a job.
    """

    def __init__(self, on: On) -> None:
        self._resources = ExitStack()
        try:
            options = SparkOptions(master=on) if isinstance(on, str) else on
            limit = options.start_limit if isinstance(options, SparkOptions) else None
            self.patience = _EXECUTOR_SECONDS if limit is None else limit
            """Seconds to wait for one more executor."""
            self.session = _open(options, self._resources, _BARRIER) if isinstance(options, SparkOptions) else options
            self.context = _context_of(self.session)
            _ship(self.context)
        except BaseException:
            self.close()
            raise

    @property
    def master(self) -> str:
        """Address of the master."""
        return str(self.context.master)

    @property
    def host(self) -> str:
        """Address of this process for executors."""
        return str(self.context.getConf().get("spark.driver.host"))

    @property
    def bind(self) -> str:
        """Local address to listen at for executors."""
        return str(self.context.getConf().get("spark.driver.bindAddress") or self.host)

    def slots(self) -> int:
        """Number of tasks an idle cluster can run at the same time."""
        spark: Any = self.context._jsc.sc()  # what Spark's own check of barrier stages asks
        return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))

    def close(self) -> None:
        """End the session if it was started here."""
        self._resources.close()


def driver(on: On | None, resources: ExitStack) -> SparkSession:
    """Session for a program on Spark: given, current in this process, or new.

    What is made here ends with `resources`.
    """
    from pyspark.sql import SparkSession

    if on is None and ((found := SparkSession.getActiveSession()) is not None or submitted()):
        on = found or SparkSession.builder.getOrCreate()
    options = SparkOptions() if on is None else SparkOptions(master=on) if isinstance(on, str) else on
    if getattr(options, "connect", None) is not None or type(options).__module__.startswith("pyspark.sql.connect"):
        raise SparkError(
            "a program runs on Spark alone by the address of a master, on='spark://host:port', not over Spark Connect"
        )
    session = _open(options, resources, {}) if isinstance(options, SparkOptions) else options
    if not str(session.conf.get("spark.master", "")).startswith("local"):
        _ship(session.sparkContext)
    return session


def _open(options: SparkOptions, resources: ExitStack, more: dict[str, str]) -> SparkSession:
    """New session in this process, stopped with `resources`."""
    check_version(installed())
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        raise SparkError("this process has a Spark session already: give that (on=session), or stop it first")
    check_master(options.master)
    folder = resources.enter_context(closing(Scratch("spark"))).path
    made = more | settings(options, folder, level="OFF")  # whoever runs the job says what is lost
    java = find_java()
    variables = environment(options, home_for_spark(java, folder), java_options=options_to_use(java))
    variables["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", variables["PYSPARK_PYTHON"])
    if _on_this_machine(options.master):
        made = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} | made
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    with _variables(variables):
        session = _opened(options, made)
    resources.callback(session.stop)
    return session


def _opened(options: SparkOptions, made: dict[str, str]) -> SparkSession:
    """New session, opened in another thread.

    Spark would take Ctrl-C over in the main one.
    """
    found: list[SparkSession] = []
    errors: list[Exception] = []

    def begin() -> None:
        try:
            found.append(open_session(made))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=begin, name="falkirk-spark", daemon=True)
    thread.start()
    thread.join(options.start_limit)
    if found:
        return found[0]
    why = f"nothing came within {options.start_limit or math.inf:g} s"
    if errors:
        why = " ".join((message_of_java(errors[0]) or f"{type(errors[0]).__name__}: {errors[0]}").split())
    raise SparkError(
        f"no session could be opened on the Spark master {options.master}: {why}. Is it a master of the same version of Spark, "
        "and can it reach this machine?"
    )


def message_of_java(error: Exception) -> str | None:
    """Message of the Java exception behind `error`; None without one, or without Java."""
    java = getattr(error, "java_exception", None)
    try:
        return None if java is None else str(java.getMessage())
    except Exception:
        return None


def _context_of(session: Any) -> SparkContext:
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise SparkError(
            "a session of Spark Connect cannot run a job: it has no barrier stages. Give the address of the master, "
            "on='spark://host:port'"
        )
    from pyspark.sql import SparkSession

    if not isinstance(session, SparkSession):
        raise SparkError(f"on= takes a SparkSession or the address of a master, not {type(session).__name__}")
    context = session.sparkContext
    if str(context.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
        raise SparkError("Spark does not allow barrier stages with spark.dynamicAllocation.enabled: set it to false")
    return context


def _ship(context: SparkContext) -> None:
    """Ship this code to every executor's Python, even over an installed version."""
    from pyspark import cloudpickle

    if context in _shipped:
        return
    scratch = Scratch("code")
    weakref.finalize(context, scratch.close)
    file = scratch.path / f"falkirk-{secrets.token_hex(4)}.zip"
    root = Path(timely.__file__).parent.parent
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for package in PACKAGES:
            for path in sorted((root / package).rglob("*")):
                if path.is_file() and path.suffix != ".pyc":
                    archive.write(path, path.relative_to(root))
    context.addPyFile(str(file))
    # What begins before the rest is loaded.
    for module in (meeting, start):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    _shipped[context] = file


def _on_this_machine(master: str) -> bool:
    """True if all masters in the address are on this machine.

    Then nothing has to listen to other machines.
    """
    if not master.startswith("spark://"):
        return False
    return {urlsplit(f"spark://{each}").hostname for each in master.removeprefix("spark://").split(",")} <= _LOOPBACK


@contextmanager
def _variables(made: dict[str, str]) -> Iterator[None]:
    """Replace the environment while Spark starts; it reads it once."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(made)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
