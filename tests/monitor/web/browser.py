"""A headless Chromium, driven over its DevTools protocol: just what these tests, and the script of the picture, need."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_browser() -> str | None:
    """The browser there is; FALKIRK_BROWSER chooses another one."""
    chosen = os.environ.get("FALKIRK_BROWSER")
    return chosen or next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """One page."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._resources = ExitStack()
        self._socket = self._resources.enter_context(
            connect(address, max_size=None, max_queue=None, ping_interval=None)
        )
        self._number = 0
        self.problems: list[str] = []
        """The complaints of the page: exceptions, errors on its console, requests that failed."""
        self.requested: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, *, patience: float = 60.0, **arguments: Any) -> Any:
        """A method of the protocol. Raises TimeoutError if the browser says nothing for `patience` seconds."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": arguments}))
        while True:
            message = json.loads(self._socket.recv(patience))
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        about = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = about["exceptionDetails"]
                self.problems.append(details.get("exception", {}).get("description") or details["text"])
            case "Runtime.consoleAPICalled" if about["type"] == "error":
                self.problems.append(str(about["args"]))
            case "Log.entryAdded" if about["entry"]["level"] == "error":
                self.problems.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.requested.append(about["request"]["url"])

    def go(self, url: str) -> None:
        """Open an address."""
        self.call("Page.navigate", url=url)

    def run(self, script: str, patience: float = 60.0) -> Any:
        """The value of an expression; promises are waited for."""
        answer = self.call(
            "Runtime.evaluate", patience=patience, expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = 60.0) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + seconds
        while True:
            try:
                if self.run(f"Boolean({script})", patience=10.0):
                    return
            except (RuntimeError, TimeoutError):
                pass  # between two pages; a question that is asked just then may never be answered
            if time.monotonic() > until:
                raise AssertionError(f"in {seconds:.0f} s it did not come true that {script}; {self.problems}")
            time.sleep(0.05)

    def click(self, selector: str, times: int = 1) -> None:
        """Click in the middle of what a selector finds."""
        script = (
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); one.scrollIntoView({{block: 'nearest'}});"
            "const b = one.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2] })()"
        )
        x, y = self.run(script)
        for count in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count)

    def key(self, key: str, text: str = "") -> None:
        """Press a key."""
        given = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **given)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def size(self, width: int, height: int, dark: bool = False, scale: float = 1) -> None:
        """The size of the window, and whether its user likes it dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: str | Path) -> None:
        """Save what is seen as PNG."""
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """Leave it."""
        self._resources.close()


@contextmanager
def browser(executable: str) -> Iterator[Tab]:
    """A browser with one tab."""
    with tempfile.TemporaryDirectory(prefix="falkirk-browser-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                executable,
                "--headless=new",
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
                "--no-sandbox",  # as root, in containers
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port = _port(Path(profile) / "DevToolsActivePort", process)
            tab = Tab(_tab(port))
            try:
                yield tab
            finally:
                tab.close()
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.05)
    raise RuntimeError("the browser has not started")


def _tab(port: int) -> str:
    from urllib.request import urlopen

    with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=60) as answer:
        tabs = json.load(answer)
    return str(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
