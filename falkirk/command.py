"""The command `falkirk`, which Ctrl-C ends without a traceback while it is still being imported."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn


def stop_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """Ctrl-C before there is anything to clean up: a traceback out of the middle of an import helps nobody."""
    os.write(2, b"stopped: by Ctrl-C\n")
    os._exit(128 + number)


def main() -> None:
    """The entry point."""
    signal.signal(signal.SIGINT, stop_at_once)
    from falkirk.cli import main as run

    run()
