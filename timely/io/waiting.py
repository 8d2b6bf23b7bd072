"""Wait for readable files with any descriptor numbers.

`select.select` refuses those from 1024 on.
"""

from __future__ import annotations

import select
from collections.abc import Iterable


def wait_readable(files: Iterable[int], seconds: float | None = None) -> list[int]:
    """Readable or ended files among `files`; empty after `seconds`.

    Returns as soon as there are any.
    """
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return [file for file, _ in poll.poll(None if seconds is None else seconds * 1000)]
