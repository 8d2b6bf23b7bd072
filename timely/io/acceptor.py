"""Accepting sockets robust against aborted callers and descriptor exhaustion.

Callers come and go as they like, and the process may have no descriptor left for one more. None of that is an error of the
process that listens.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import suppress
from typing import Any

_NONE_LEFT = (errno.EMFILE, errno.ENFILE)
_REST_SECONDS = 0.01


class Acceptor:
    """Non-blocking acceptor for `listener`; `close` closes the listener too.

    A descriptor is kept in reserve. When there is no other, a caller is taken with it and hung up on at once: a caller that
    waited instead would keep the listener readable, and its owner busy with nothing else.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        listener.setblocking(False)
        self._reserve: int | None = _reserved()

    def accept(self) -> tuple[socket.socket, Any] | None:
        """Next connection and its address; None if there is none, or it was refused."""
        try:
            return self.listener.accept()
        except OSError as error:  # mostly: it gave up before we came
            if error.errno in _NONE_LEFT:
                self._turn_away()
            return None

    def close(self) -> None:
        """Close the listener."""
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None
        self.listener.close()

    def _turn_away(self) -> None:
        if self._reserve is None:
            time.sleep(_REST_SECONDS)
        else:
            os.close(self._reserve)
            with suppress(OSError):
                self.listener.accept()[0].close()
        self._reserve = _reserved()


def _reserved() -> int | None:
    """Spare descriptor; None if another thread was faster."""
    with suppress(OSError):
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return None
