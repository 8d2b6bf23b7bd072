"""Something done beside a running job: kill a process, ask the page. A failure of either is a failure of the test."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def run_beside(work: Callable[[], T], disturb: Callable[[], object], patience: float = 180) -> T:
    """The result of `work`, while `disturb` runs in another thread; `patience` is how long that may go on afterwards.

    What `disturb` raises interrupts `work`, which may wait for what will not be done any more, and is raised here.
    """
    problems: list[BaseException] = []
    working = threading.Lock()
    over = False

    def disturbing() -> None:
        try:
            disturb()
        except BaseException as error:
            problems.append(error)
            with working:
                if not over:
                    os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=disturbing, daemon=True)
    try:
        try:
            thread.start()
            result = work()
        finally:
            with working:
                over = True
    except BaseException as error:
        thread.join(1)
        if problems and isinstance(error, KeyboardInterrupt):
            raise problems[0] from None
        if problems:
            raise error from problems[0]
        raise
    thread.join(patience)
    if problems:
        raise problems[0]
    assert not thread.is_alive(), "the job has ended, and what was done beside it has not"
    return result
