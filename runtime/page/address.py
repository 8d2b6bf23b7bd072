"""Addresses of pages, for browsers, and doors of jobs, for pages."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from dataclasses import dataclass

from runtime.folders.store_folder import StoreFolder
from timely.errors import FalkirkError

UNIX = "unix:"

PORT = 8642
"""Default port, if it is free."""


@dataclass(frozen=True, slots=True)
class PageSocket:
    """Listening socket of a page.

    `token` is empty at loopback, where none is needed.
    """

    listener: socket.socket
    title: str
    token: str
    url: str

    def close(self) -> None:
        """Close this copy of the socket; a page process with another one goes on."""
        self.listener.close()


def door_of(folder: StoreFolder) -> str:
    """Path of the running job's unix socket. Raises OSError if none runs here."""
    return folder.page.read_text().removeprefix(UNIX)


def open_door(path: str) -> socket.socket:
    """Listen at a unix socket for those who look at a job, in a folder of this user's."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(32)
    except BaseException:
        listener.close()
        raise
    return listener


def open_page(title: str, host: str = "127.0.0.1", port: int | None = None) -> PageSocket:
    """Listen for browsers.

    `port` 0 is any free one; None `PORT`, or any if that is taken.

    Raises FalkirkError if nobody can listen there.
    """
    listener = None
    for number in (PORT, 0) if port is None else (port,):
        try:
            listener = _listen(host, number)
            break
        except OSError as error:
            if number != PORT or port is not None:
                raise FalkirkError(
                    f"the page cannot be served at {host}:{number} ({error.strerror or error}): choose another address or port"
                ) from error
    assert listener is not None
    token = "" if is_loopback(host) else secrets.token_urlsafe(18)
    shown = f"[{host}]" if ":" in host else host
    if host in ("0.0.0.0", "::"):
        shown = socket.gethostname()
    url = f"http://{shown}:{listener.getsockname()[1]}/"
    return PageSocket(listener, title, token, f"{url}?token={token}" if token else url)


def is_loopback(host: str) -> bool:
    """True if the address is a loopback address: reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(64)
    except BaseException:
        listener.close()
        raise
    return listener
