"""Something done beside a running job: kill a process, ask the page. A failure of either is a failure of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def run_beside(work: Callable[[], T], disturb: Callable[[], object], patience: float = 180) -> T:
    """What `work` returns, while `disturb` runs in another thread; `patience` is how long that may go on afterwards.

    What `disturb` raises is raised here, after `work` has ended, or as the context of its own error.
    """
    problems: list[BaseException] = []

    def disturbing() -> None:
        try:
            disturb()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=disturbing, daemon=True)
    thread.start()
    try:
        result = work()
    except BaseException as error:
        thread.join(1)
        if problems:
            raise error from problems[0]
        raise
    thread.join(patience)
    if problems:
        raise problems[0]
    assert not thread.is_alive(), "the job has ended, and what was done beside it has not"
    return result
