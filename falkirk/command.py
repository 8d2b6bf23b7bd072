"""Entry point of the command `falkirk`, with early handling of Ctrl-C.

Ctrl-C during the imports ends it without a traceback.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn


def stop_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """Handler of Ctrl-C during imports: exit at once, without a traceback."""
    os.write(2, b"stopped: by Ctrl-C\n")
    os._exit(128 + number)


def main() -> None:
    """The entry point."""
    signal.signal(signal.SIGINT, stop_at_once)
    from falkirk.cli import main as run

    run()
