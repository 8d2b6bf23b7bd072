"""S3-compatible server on loopback, a process of its own, behind a proxy that counts, delays and refuses."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

SECRET = "wJalrXUtnFEMI-SECRET-bPxRfiCYEXAMPLEKEY"
_REQUEST = re.compile(rb"(GET|PUT|HEAD|POST|DELETE) /\S* HTTP/1\.1\r\n")


class Proxy:
    """Proxy of TCP connections to `port`, which delays each request by `delay` seconds.

    `away`: connections are refused, and those that there are end. `swallow`: so many answers to puts get lost.
    """

    def __init__(self, port: int, delay: float = 0.0) -> None:
        self.delay, self.away, self.swallow = delay, False, 0
        self.calls: Counter[str] = Counter()
        self._to = port
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def go_away(self) -> None:
        self.away = True
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def come_back(self) -> None:
        self.away = False

    def close(self) -> None:
        self._listening.close()
        self.go_away()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self.away:
                client.close()
                continue
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server = socket.create_connection(("127.0.0.1", self._to))
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open |= {client, server}
            last: list[str] = [""]
            for each in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._copy, args=(*each, last), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, requests: bool, last: list[str]) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if requests and (found := _REQUEST.search(data)):
                    last[0] = found[1].decode()
                    self.calls[last[0]] += 1
                    time.sleep(self.delay)
                elif not requests and last[0] == "PUT" and self.swallow:
                    self.swallow -= 1
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            self._open.discard(each)


@contextmanager
def serving() -> Iterator[int]:
    """Port of a server, with the bucket "jobs"."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.s3_server", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60
        while True:
            try:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/jobs", method="PUT")
                request.add_header("Host", f"127.0.0.1:{port}")
                request.add_header(
                    "Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"
                )
                urllib.request.urlopen(request).close()
                break
            except OSError:
                assert server.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
        yield port
    finally:
        server.kill()
        server.wait()


def use(port: int, patch: pytest.MonkeyPatch) -> None:
    """Have this process, and those that it starts, use the server at `port`."""
    patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    patch.setenv("AWS_ACCESS_KEY_ID", "AKIAFALKIRKTEST")
    patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    patch.setenv("AWS_REGION", "us-east-1")
    for each in [name for name in os.environ if name.lower().endswith("_proxy")]:
        patch.delenv(each)
