"""Session on a running Java, after the end of the work that earlier clients began.

The Java of a child that has died goes on with the call that it is in. If that is about to write, after it has planned for
seconds, there is no job to be cancelled yet, and the write would come later, beside that of the next attempt. So a child that
finds a Java which others have used waits until the threads that serve their connections have ended, and until the tasks of
cancelled jobs have: one of them may be moving its file to where it belongs.

Which threads these are is asked first of all. Later the child has other connections of its own: of its threads, and that by
which Py4J lets go of Java's objects.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from libraries.spark.protocol import JavaUp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SERVES = "py4j.ClientServerConnection.run("
"""Stack frame of threads for Python's connections."""

_OWN = "dumpAllThreads("
"""Stack frame of the thread used for the thread dump itself."""

_LOOK_SECONDS = 0.02
_TASKS_SECONDS = 5.0
"""Seconds to wait for the end of tasks.

One that takes longer may not commit any more: its stage is over.
"""


def attach(up: JavaUp, seconds: float) -> SparkSession:
    """Session in this process on a running Java; earlier clients' work there is ended.

    A Java on which there is a Spark already, and which does not answer, or goes on with that, for so many seconds, is killed.
    """
    from pyspark.conf import SparkConf
    from pyspark.core.context import DEFAULT_CONFIGS, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_GATEWAY_PORT": str(up.port), "PYSPARK_GATEWAY_SECRET": up.secret}
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    watch = threading.Timer(seconds, os.kill, (up.pid, signal.SIGKILL))
    watch.daemon = True
    others = []
    if up.used:
        watch.start()
        others = _connections_of_others(gateway.jvm)
    conf = SparkConf(_jvm=gateway.jvm)
    for name, value in (DEFAULT_CONFIGS | up.settings).items():
        conf.set(name, value)
    context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate(conf._jconf)
    java = gateway.jvm.JavaSparkContext.fromSparkContext(context)
    session = SparkSession(SparkContext(conf=conf, gateway=gateway, jsc=java))
    if up.used:
        _end_earlier_work(session, others)
        session.catalog.clearCache()
    watch.cancel()
    return session


def _connections_of_others(java: Any) -> list[int]:
    """Java threads of other clients' connections.

    The caller has no other connection yet.
    """
    found = []
    for thread in java.org.apache.spark.util.Utils.getThreadDump():
        stack = "" if thread is None else str(thread.toString())
        if _SERVES in stack and _OWN not in stack:
            found.append(int(thread.threadId()))
    return found


def _end_earlier_work(session: SparkSession, connections: list[int]) -> None:
    """Stop all work on a Spark, and wait for its end and that of these connections.

    What cannot be stopped is waited for: whoever does not want to wait for ever has Java killed.
    """
    context: Any = session.sparkContext
    java: Any = session._jsparkSession
    while True:
        others = _serve(session._jvm, connections)  # before the rest: what these have begun is there to be stopped then
        for query in java.sharedState().activeStreamingQueries().values():
            query.stop()
        context.cancelAllJobs()
        if not others:
            break
        time.sleep(_LOOK_SECONDS)
    deadline = time.monotonic() + _TASKS_SECONDS
    while _tasks(context) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _serve(java: Any, threads: list[int]) -> bool:
    """True if one of these threads is alive.

    Java gives no number to a thread that another one had.
    """
    bean = java.java.lang.management.ManagementFactory.getThreadMXBean()
    return any(bean.getThreadInfo(thread) is not None for thread in threads)


def _tasks(context: Any) -> int:
    """Number of running tasks."""
    return sum(executor.numRunningTasks() for executor in context._jsc.sc().statusTracker().getExecutorInfos())
