"""The connection of a forked process to the fork server that has forked it: by it a process can have others forked."""

from __future__ import annotations

import socket

sock: socket.socket | None = None
"""None in a process that no fork server has forked, and in one that is `Order.alone`."""
