"""Connection of a forked process to its fork server, for forking others in turn."""

from __future__ import annotations

import socket

sock: socket.socket | None = None
"""Connection to the fork server.

None in processes not forked by a server, or forked as `Order.detached`.
"""
