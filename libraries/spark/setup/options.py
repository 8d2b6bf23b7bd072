"""Creation of Spark sessions: options, process environment and settings.

Nothing here starts a process. Whoever wants Spark sets `environment(...)` for a process and calls `open_session(...)` in it:
regions do so in a child process of their own (`libraries.spark.host.host`), others may do it where they are.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import unquote

from libraries.spark.errors import SparkError
from libraries.spark.setup.defaults import LEVEL, holds, logs_by_itself, read_defaults
from libraries.spark.setup.submitted import held
from libraries.spark.setup.submitted import master as submitted_master
from libraries.spark.setup.submitted import settings as submitted_settings
from timely.errors import at_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(\[(\*|\d+)(\s*,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")
_MOST_HEAP = 4 << 30
_STARTED_BY_EXECUTOR = "PYTHON_WORKER_FACTORY_"
"""Environment variables set for Python processes started by a Spark executor."""

_OF_EXECUTORS = (
    *("PYTHON_WORKER_", "PYTHON_DAEMON_", "SPARK_PYTHON_RUNTIME", "SPARK_ENV_LOADED", "SPARK_EXECUTOR_"),
    *("SPARK_LOCAL_DIRS", "SPARK_JOB_", "SPARK_LOG_URL_"),
)
"""Executor variables to remove, misleading for a Spark started from there."""

_JAVA_OPTIONS = "-XX:+ExitOnOutOfMemoryError"
"""Java option to end Spark on a full heap; otherwise it would live on, useless."""

_LATER = "-XX:Tier4InvocationThreshold=40000 -XX:Tier4MinInvocationThreshold=5000 -XX:Tier4CompileThreshold=120000"
"""Java options to delay the second compiler: startup code rarely runs again.

It waits eight times as long as usual.
"""

_SERVER = re.compile(r"sc://(?:\[[0-9A-Fa-f:.]+\]|[^\s/:;@\[\]]+)(?::\d{1,5})?(?:/(?:;.*)?)?")
_PUBLIC = ("use_ssl", "user_id", "session_id", "user_agent")
"""Public parameters of a server's address."""

_CONNECT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Options of a Spark session, shared by regions with equal options.

    Args:
        master: what Spark calls the master: local[*] for this machine, spark://host:port for a cluster. A cluster must see
            the folder in which the job keeps its files. By default local[*], or, in a program that `spark-submit` runs, the
            master and the settings that it was given.
        memory: the heap of Spark's driver, which does all the work where the master is local, for example "2g". By default
            half of the memory, at most 4 GB.
        config: settings of Spark, by name; they win over those made here, and options for Java are added to those made
            here. They go with the session, not with a region.
        limit: seconds in which a run of a region must get on by a task at least; one that does not counts as hanging.
        retries: how often a run that failed is tried again.
        start_limit: seconds that Spark may take to start; one that takes longer is ended, and begun anew. None, the default:
            as long as its process lives. A whole job on a cluster waits so long for each further executor, by default 300 s.
        nice: by how much the priority of Spark's process is lowered, so that the streaming regions stay quick.
        spare: keep a second Java, with a session, for the case that the first one dies. It takes as much memory again.
        connect: the address of a Spark Connect server, "sc://host:port", with parameters as in "sc://host:port/;token=...":
            Spark runs there, and no Java here. The extra `falkirk[connect]` is needed.
        sail: run on a Sail beside the job, a Spark Connect server without Java, and no Spark. The extra `falkirk[sail]` is
            needed: see docs/spark_sail.md.
        shared: True if that server sees the folder of the job's files, False if rows are to be sent to it and back; None, the
            default: it is found out.
    """

    says_where: ClassVar[bool] = True

    master: str = ""
    memory: str | None = None
    config: tuple[tuple[str, str], ...] = ()
    limit: float = 3600.0
    retries: int = 2
    start_limit: float | None = None
    nice: int = 10
    spare: bool = False
    connect: str | None = field(default=None, repr=False)  # there may be a token in it
    shared: bool | None = None
    sail: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.config, Mapping):
            object.__setattr__(self, "config", tuple(sorted((k, str(v)) for k, v in self.config.items())))
        given = self.master
        if not given and not self.remote:
            object.__setattr__(self, "config", tuple(sorted((held() | dict(self.config)).items())))
            object.__setattr__(self, "master", submitted_master())
        elif not given:
            object.__setattr__(self, "master", "local[*]")
        if self.memory is not None and not re.fullmatch(r"\d+[kmgt]b?", self.memory.lower()):
            raise SparkError(
                at_line(f'memory={self.memory!r}: give the heap of Spark as a number and a unit, as in "2g" or "900m"')
            )
        if not (self.limit > 0 and (self.start_limit is None or self.start_limit > 0) and self.retries >= 0):
            raise SparkError(at_line("limit and start_limit are positive numbers of seconds, and retries is 0 or more"))
        if self.sail and (self.connect, given, self.memory, self.spare, self.shared) not in (
            (None, "", None, False, None),
            (None, "local[*]", None, False, None),
        ):
            raise SparkError(
                at_line(
                    "sail=True is a Sail beside the job: master=, memory=, spare=, connect= and shared= do not go with it"
                )
            )
        if self.connect is None:
            if self.shared is not None:
                raise SparkError(at_line("shared= is about a Spark Connect server: name it with connect="))
        elif not isinstance(self.connect, str) or not _SERVER.fullmatch(self.connect):
            raise SparkError(at_line('connect=: must be "sc://host:port", or "sc://host:port/;name=value;name=value"'))
        elif (given, self.memory, self.spare) not in (("", None, False), ("local[*]", None, False)):
            raise SparkError(
                at_line("master=, memory= and spare= are for a Spark that is started here, not with connect=")
            )

    @property
    def remote(self) -> bool:
        """True for a Spark Connect server, False for a Java."""
        return self.connect is not None or self.sail

    @property
    def server(self) -> str:
        """Address of the Spark Connect server, without secrets."""
        return (self.connect or "").partition("/;")[0]

    @property
    def local(self) -> bool:
        """True if all of Spark runs on this machine."""
        return is_local(self.master)


def is_local(master: str) -> bool:
    """True if all of a Spark with this master runs on this machine."""
    return _LOCAL.fullmatch(master) is not None


def settings(options: SparkOptions, folder: Path, level: str = "ERROR") -> dict[str, str]:
    """Settings of a Spark session.

    Args:
        options: what the user has said.
        folder: for what Spark keeps on this machine while it runs.
        level: of what Spark logs, unless the user has said that.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    made = {
        "spark.master": options.master,
        "spark.app.name": "falkirk",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": options.memory or f"{min(_MOST_HEAP, _memory() // 2) >> 20}m",
        "spark.driver.extraJavaOptions": f'{_JAVA_OPTIONS} {_LATER} -XX:-UsePerfData "-Djava.io.tmpdir={folder}"',
        "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
        "spark.scheduler.mode": "FAIR",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Times as Arrow has them; the default is a form from before Parquet had any.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # A Python process whose task is not wanted any more ends soon: the next attempt may wait for that.
        "spark.python.task.killTimeout": "1s",
    }
    if options.local:
        made |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * cores),
            "spark.default.parallelism": str(cores),
            # From this many files on Spark has a job of many tasks look at them: here it is quicker to look at them oneself.
            "spark.sql.sources.parallelPartitionDiscovery.threshold": str(1 << 20),
        }
    conf = _conf_folder(os.environ)
    defaults = {name: value for name, value in read_defaults(conf).items() if holds(name)}
    if not logs_by_itself(defaults | dict(options.config), conf):
        made[LEVEL] = level
    for wanted in (defaults, dict(options.config)):
        for name in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
            if name in wanted:  # Java lets the last one of two options win
                wanted[name] = f"{made[name]} {wanted[name]}"
        made |= wanted
    if options.memory is not None:
        made["spark.driver.memory"] = options.memory
    return made


def ignored_settings(options: SparkOptions) -> list[str]:
    """User's Spark settings without effect on a Spark with these options."""
    made = settings(options, Path())
    found = {**read_defaults(_conf_folder(os.environ)), **submitted_settings()}
    return sorted(
        name
        for name, value in found.items()
        if not holds(name) and made.get(name) != value and name not in dict(options.config)
    )


def _conf_folder(environ: Mapping[str, str]) -> str | None:
    home = environ.get("SPARK_HOME")
    return environ.get("SPARK_CONF_DIR") or (home and str(Path(home) / "conf"))


def secrets(url: str) -> tuple[str, ...]:
    """Possibly secret parameter values in a server's address.

    >>> secrets("sc://host:15002/;use_ssl=true;token=abc")
    ('abc',)
    """
    pairs = [part.partition("=") for part in url.partition("/;")[2].split(";")]
    values = [value for name, _, value in pairs if name not in _PUBLIC and value]
    return tuple(dict.fromkeys([*values, *map(unquote, values)]))


def session_settings(options: SparkOptions) -> dict[str, str]:
    """Settings of a session on a Spark started elsewhere."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.connect.serverStacktrace.enabled": "false",
        "spark.sql.pyspark.jvmStacktrace.enabled": "false",
    } | dict(options.config)


def environment(
    options: SparkOptions, java_home: Path, environ: Mapping[str, str] = os.environ, java_options: str = ""
) -> dict[str, str]:
    """Environment for a process with Spark; `java_options` precede those of `environ`."""
    made = dict(environ)
    if any(name.startswith(_STARTED_BY_EXECUTOR) for name in made):
        # A worker on a cluster: its pyspark belongs to the Spark that has started it.
        for name in [name for name in made if name.startswith(_OF_EXECUTORS)]:
            del made[name]
    else:
        if (folder := _conf_folder(made)) is not None:
            made["SPARK_CONF_DIR"] = folder  # its settings do, and how it logs
        if not _brings_pyspark(made.get("SPARK_HOME")):
            made.pop("SPARK_HOME", None)  # another Spark than the one that pyspark brings does not fit it
    made["JAVA_HOME"] = str(java_home)
    made["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if options.local or not made.get("PYSPARK_PYTHON"):  # that of a cluster is elsewhere
        made["PYSPARK_PYTHON"] = sys.executable
    made["PYTHONPATH"] = python_path()
    if java_options:
        made["SPARK_SUBMIT_OPTS"] = f"{java_options} {made.get('SPARK_SUBMIT_OPTS', '')}".strip()
    if options.local:
        made["SPARK_LOCAL_IP"] = "127.0.0.1"
    return made


def _brings_pyspark(home: str | None) -> bool:
    """True if this process's pyspark is in this SPARK_HOME.

    That is so in a program that `spark-submit` runs (in an archive).
    """
    found = find_spec("pyspark") if home else None
    if home is None or found is None or found.origin is None:
        return False
    return Path(found.origin).resolve().is_relative_to(Path(home, "python").resolve())


def python_path() -> str:
    """This process's import path, for another Python process."""
    return os.pathsep.join(path for path in sys.path if path)


def check_master(master: str) -> None:
    """Raise SparkError for an invalid or unreachable master."""
    if _LOCAL.fullmatch(master) or master == "yarn" or master.startswith("k8s://"):
        return
    if master.startswith("sc://"):
        raise SparkError(
            "Spark Connect runs no barrier stages, which a whole job on a cluster needs, and no master: give its address to "
            "regions, with SparkOptions(connect=), and to --on and master= the address of a master"
        )
    if not master.startswith("spark://"):
        raise SparkError(f"master={master!r}: must be local[*], local[N], spark://host:port, yarn, or k8s://...")
    refused = []
    for address in master.removeprefix("spark://").split(","):
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit():
            raise SparkError(f"master={master!r}: {address!r} is not host:port")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
            return
        except OSError as error:
            refused.append(f"{address}: {error.strerror or error}")
    raise SparkError(
        f"the Spark master {master} does not answer ({'; '.join(refused)}): is it started, and can this machine reach it?"
    )


def open_session(made: Mapping[str, str]) -> SparkSession:
    """Open a Spark session in this process, with the given settings."""
    from pyspark.conf import SparkConf
    from pyspark.sql import SparkSession

    conf = SparkConf()
    for name, value in made.items():
        conf.set(name, value)
    session: SparkSession = SparkSession.builder.config(conf=conf).getOrCreate()
    return session


def _memory() -> int:
    """Memory of this machine, or of this process's control group, in bytes."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        total = 2 * _MOST_HEAP
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(file).read_text()))
        except (OSError, ValueError):
            continue
    return total
