"""The end of all that others, who are gone, had a Java do: before it nobody may begin the same again.

The Java of a child that has died goes on with the call that it is in. If that is about to write, after it has planned for
seconds, there is no job to be cancelled yet, and the write would come later, beside that of the next attempt. So a child that
finds a Java which others have used waits until every thread that serves a connection, but for its own, has ended, and until the
tasks of cancelled jobs have: one of them may be moving its file to where it belongs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SERVES = "py4j.ClientServerConnection.run("
"""A frame of the stack of each thread that serves a connection of Python's."""

_OWN = "dumpAllThreads("
"""A frame of the one that is asked for the stacks."""

_LOOK_SECONDS = 0.02
_TASKS_SECONDS = 5.0
"""Seconds for which tasks are waited for. One that takes longer may not commit any more: its stage is over."""


def end_what_others_began(session: SparkSession) -> None:
    """Stop all that runs on a Spark, in the name of whoever, and wait until it is over.

    What cannot be stopped is waited for: whoever does not want to wait for ever has Java killed.
    """
    context: Any = session.sparkContext
    java: Any = session._jsparkSession
    while True:
        others = _calls_of_others(session._jvm)  # before the rest: what these have begun is there to be stopped then
        for query in java.sharedState().activeStreamingQueries().values():
            query.stop()
        context.cancelAllJobs()
        if not others:
            break
        time.sleep(_LOOK_SECONDS)
    deadline = time.monotonic() + _TASKS_SECONDS
    while _tasks(context) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _calls_of_others(java: Any) -> int:
    """The number of threads that serve a connection of somebody else."""
    threads = java.org.apache.spark.util.Utils.getThreadDump()
    stacks = [str(thread.toString()) for thread in threads if thread is not None]
    return sum(_SERVES in stack and _OWN not in stack for stack in stacks)


def _tasks(context: Any) -> int:
    """The number of tasks that run."""
    return sum(executor.numRunningTasks() for executor in context._jsc.sc().statusTracker().getExecutorInfos())
