"""Load on a page, for `page_under_load.py`: `page_load.py hostile|tabs URL SECONDS`. Prints what it did as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

CONNECTIONS, TABS = 2_000, 20
PAUSE = 1.0
"""Seconds until a closed connection is opened again, and between bytes of slow ones."""
GARBAGE = b"\x16\x03\x01\x02\x00" + b"\xff" * 500
STREAM = b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Hostile:
    """Idle, slow, deaf and garbling connections."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.opened = self.now = self.most = 0

    async def keep(self, kind: int, until: float) -> None:
        """Hold a connection of one of four kinds, again and again."""
        while time.monotonic() < until:
            try:
                reader, writer = await asyncio.open_connection(self._host, self._port)
            except OSError:
                await asyncio.sleep(PAUSE)
                continue
            self.opened += 1
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                if kind == 1:
                    for byte in b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 10_000:
                        writer.write(bytes([byte]))
                        await writer.drain()
                        if reader.at_eof() or time.monotonic() > until:
                            break
                        await asyncio.sleep(PAUSE)
                elif kind == 2:
                    writer.transport.pause_reading()  # type: ignore[attr-defined]
                    writer.write(STREAM)
                    while not writer.transport.is_closing() and time.monotonic() < until:
                        await asyncio.sleep(PAUSE)
                        writer.write(b"x")  # a closed connection is noticed by writing
                else:
                    if kind == 3:
                        writer.write(GARBAGE)
                    async with asyncio.timeout_at(
                        asyncio.get_running_loop().time() + max(0.0, until - time.monotonic())
                    ):
                        while await reader.read(1 << 16):
                            pass
            except (OSError, TimeoutError):
                pass
            finally:
                self.now -= 1
                writer.transport.abort()
            await asyncio.sleep(PAUSE)


async def hostile(host: str, port: int, seconds: float) -> dict[str, float]:
    """Hold many connections for a time."""
    all_of_them, until = Hostile(host, port), time.monotonic() + seconds
    await asyncio.gather(*(all_of_them.keep(number % 4, until) for number in range(CONNECTIONS)))
    return {"at_once": all_of_them.most, "opened_a_second": all_of_them.opened / seconds}


async def tabs(host: str, port: int, seconds: float) -> dict[str, float]:
    """Read the stream of events, as many tabs do; the greatest age of what is shown, and how often it comes."""
    until = time.monotonic() + seconds
    ages: list[list[float]] = [[] for _ in range(TABS)]

    async def read(own: list[float]) -> None:
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 24)
        writer.write(STREAM)
        while time.monotonic() < until:
            line = await reader.readline()
            if line.startswith(b"data: ") and (at := json.loads(line[6:]).get("at")) is not None:
                own.append(time.time() - at)
        writer.transport.abort()

    await asyncio.gather(*map(read, ages))
    late = sorted(age for own in ages for age in own[1:])
    return {
        "tabs_with_news": sum(len(own) > 2 for own in ages),
        "updates_a_second_of_the_least": min(len(own) for own in ages) / seconds,
        "age_p50": late[len(late) // 2],
        "age_most": late[-1],
    }


if __name__ == "__main__":
    parts = urlsplit(sys.argv[2])
    part = {"hostile": hostile, "tabs": tabs}[sys.argv[1]]
    print(json.dumps(asyncio.run(part(str(parts.hostname), int(parts.port or 0), float(sys.argv[3])))))
