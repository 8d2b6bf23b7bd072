"""One attempt at a cluster job: a barrier stage, from submission to its end."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from libraries.spark.cluster.session import SparkCluster, message_of_java
from libraries.spark.errors import SparkError

_LOOK_SECONDS = 0.1
_QUIET_SECONDS = 3.0
"""Seconds without enough executors before the user is notified."""

_SAID_SECONDS = 30.0

Work: TypeAlias = Callable[[Iterable[int]], Iterable[int]]
"""Function of each task."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Reason for a stage's premature end; `raised`: a Python error, not a loss."""

    reason: str
    raised: bool


class StageAttempt:
    """Submission of a stage of `workers` tasks; `over` is set when it has ended.

    Args:
        group: the name of Spark's job group, to cancel it by.
        patience: seconds without a further executor after which there are too few.
        note: told how many there are, while they are waited for.
    """

    def __init__(
        self, cluster: SparkCluster, work: Work, workers: int, group: str, patience: float, note: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._work = work
        self._workers = workers
        self._group = group
        self._patience = patience
        self._note = note
        self.began: float | None = None
        """Time of submission, once the cluster had slots for all tasks; None before."""
        self._cancelled = False
        self.over = threading.Event()
        self.ending: Ending | None = None
        """Reason for its failure; None without one."""
        self.refused: SparkError | None = None
        """Error of a failed submission, or of the loss of Spark itself."""
        threading.Thread(target=self._run, name=f"falkirk-{group}", daemon=True).start()

    def cancel(self) -> None:
        """Cancel the tasks; `over` follows."""
        self._cancelled = True
        with suppress(Exception):  # Spark may be gone
            self._cluster.context.cancelJobGroup(self._group)

    def _run(self) -> None:
        context = self._cluster.context
        try:
            if self._wait_for_slots():
                context.setJobGroup(self._group, f"falkirk: {self._workers} workers", interruptOnCancel=False)
                numbers = context.parallelize(range(self._workers), self._workers)
                # A result stage: Spark fails the job at once when a task is lost, and does not try by itself.
                numbers.barrier().mapPartitions(self._work).collect()
        except SparkError as error:
            self.refused = error
        except Exception as error:
            self.ending = ending_of(error)
            if self.ending is None:
                self.refused = SparkError(f"Spark's Java process is gone, or does not answer: {type(error).__name__}")
        finally:
            self.over.set()

    def _wait_for_slots(self) -> bool:
        most, rose = -1, time.monotonic()
        quiet = rose + _QUIET_SECONDS
        while (slots := self._cluster.slots()) < self._workers and not self._cancelled:
            now = time.monotonic()
            if slots > most:
                most, rose = slots, now
            if now >= quiet:
                quiet = now + _SAID_SECONDS
                self._note(
                    f"the cluster runs {slots} tasks at a time so far, and {self._workers} workers have to run at once: more "
                    f"executors are waited for, {rose + self._patience - now:.0f} s from now (--start-limit)"
                )
            if now >= rose + self._patience:
                raise SparkError(
                    f"the Spark cluster {self._cluster.master} runs at most {slots} tasks at a time, and {self._workers} "
                    "workers have to run at once: give fewer workers, or more executors or cores (spark.cores.max, "
                    "spark.executor.cores, spark.task.cpus)"
                )
            time.sleep(_LOOK_SECONDS)
        self.began = time.monotonic()
        return not self._cancelled


def ending_of(error: Exception) -> Ending | None:
    """Spark's reason for a job failure; None if the error is not from Spark."""
    reported = message_of_java(error)
    return None if reported is None else read_ending(reported)


def read_ending(text: str) -> Ending:
    """Reason in Spark's message: the last Python exception, or the kind of loss."""
    text = re.split(r"\n\s*at [\w.$]+\(|\n\tat ", text)[0]
    trace = re.search(r"PythonException: .*Traceback \(most recent call last\):\n(.*)", text, re.DOTALL)
    if trace is not None:
        lines = re.sub(r"\n\s*SQLSTATE: \w+\s*\Z", "", trace[1]).splitlines()
        frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
        return Ending("\n".join(lines[frames[-1] + 1 :] if frames else lines[-1:]).strip(), raised=True)
    lost = re.search(r"(?:ExecutorLostFailure.* Reason: |[\w.]+Exception: )(.*)", text)
    reason = lost[1] if lost is not None else (text.splitlines() or [""])[0]
    return Ending(reason.split(" Consider setting")[0].strip(" ."), raised="PythonException" in text)
