"""Job on a page: followed while it runs, and read from its store when it does not.

A job that begins, ends, goes on with its store, or gets another monitor is the same one to whoever looks.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from monitor.coordination.supervision import TimelineEvent
from monitor.explain.verdict import OVER
from monitor.web.app import Shown
from monitor.web.hub import Hub
from monitor.web.questions import JobState, OfJob, Question, WrongQuestion, answer_at_once
from recovery.layout import Layout
from recovery.store.address import StoreAddress
from recovery.store.identity import store_id
from runtime.control import cut, frame
from runtime.folders.store_folder import StoreFolder
from runtime.page.address import door_of
from runtime.page.history import HistoryFiles
from runtime.page.processes_here import ProcessesHere
from runtime.page.protocol import (
    TO_PAGE,
    DifferenceReader,
    Looking,
    PageAnswer,
    PageQuestion,
    Passed,
    Seen,
    Serve,
    encode,
)
from runtime.page.recorded import RecordedJob
from timely.errors import FalkirkError, ProtocolError

AGAIN_SECONDS = 0.25
"""Pause between two looks at a job that does not run, in seconds."""

SILENT_SECONDS = 3.0
"""Longest silence of a monitor, in seconds, before its answers count as old."""

_STORE_SECONDS = 2.0
_PATIENCE_SECONDS = 15.0
_MOST_ASKED = 4
"""Most questions in work at a time. Each costs the monitor some of its time."""
_SOON_SECONDS = 0.05
_CHUNK = 1 << 20


class _Gone(Exception):
    """Raised if a monitor goes without an answer."""


class Kept(JobState, Protocol):
    """Job at rest: of a store, or of a bundle."""

    @property
    def layout(self) -> Layout:
        """Plan of the job."""

    @property
    def happened(self) -> Iterable[TimelineEvent]:
        """Events of its timeline."""


class JobAtRest:
    """Unchanging job on a page, and answers to questions about it."""

    def __init__(
        self,
        key: str,
        title: str,
        place: str,
        looked: Callable[[], None] = lambda: None,
        history: HistoryFiles | None = None,
        processes: ProcessesHere | None = None,
    ) -> None:
        self.hub = Hub(looked=looked)
        self.shown = Shown(key, title, place, self.hub, self.ask, history, processes)
        self._kept: Kept | None = None
        self._nothing = "there is no job yet"
        self._asking = asyncio.Semaphore(_MOST_ASKED)
        self._newest = -math.inf
        """Time of the newest event."""

    @property
    def live(self) -> bool:
        """True while the job runs."""
        return False

    async def run(self) -> None:
        """Follow the job for good."""

    def show(self, kept: Kept) -> None:
        """Show a job at rest."""
        self._kept = kept
        self.hub.know(kept.layout)
        self._take(kept.happened)
        observation = kept.observe()
        if observation is not None:
            self.hub.publish(observation)
        self.hub.lose(False)

    async def ask(self, question: Question) -> bytes:
        """Answer to a question; raises WrongQuestion."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS), self._asking:
                return await self._answer(question)
        except TimeoutError:
            raise WrongQuestion("the monitor is busy, and does not answer: ask again", 503) from None

    async def _answer(self, question: Question) -> bytes:
        kept = self._kept
        if kept is None:
            raise WrongQuestion(self._nothing, 503)
        return await asyncio.to_thread(answer_at_once, kept, question)

    def _take(self, events: Iterable[TimelineEvent]) -> None:
        """Add unknown events.

        A monitor, and a store, begin with those of earlier monitors.
        """
        events = tuple(events)
        if events and events[0].at <= self._newest:
            known = {(event.kind, event.at) for event in self.hub.events}
            events = tuple(event for event in events if (event.kind, event.at) not in known)
        self._newest = max([self._newest, *(event.at for event in events)])
        self.hub.happened(events)

    def _forget(self) -> None:
        """Forget a job: another one is at the same address."""
        self.hub.forget()
        self._newest = -math.inf


class FollowedJob(JobAtRest):
    """Job of the store at `address`."""

    def __init__(self, address: StoreAddress) -> None:
        folder = StoreFolder(address)
        key = hashlib.sha256(str(address).encode(errors="surrogateescape")).hexdigest()[:12]
        text = str(address).encode(errors="replace").decode()
        super().__init__(
            key,
            os.path.basename(text.rstrip("/")) or text,
            text,
            self._looked,
            HistoryFiles(folder.history),
            ProcessesHere(folder),
        )
        self._address = address
        self._folder = folder
        self._writer: StreamWriter | None = None
        self._served = self._connected = False
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._asked = 0
        self._last_message = time.monotonic()
        self._identity: bytes | None = None
        self._read: object = None
        """State of the store when it was last read."""
        self._due = 0.0

    @property
    def live(self) -> bool:
        return self._connected

    async def run(self) -> None:
        """Follow the job for good: through all its runs and monitors."""
        while True:
            try:
                await self._follow_once()
            except Exception as error:  # of one attempt; what is shown stays
                self._nothing = f"the job cannot be shown: {type(error).__name__}: {error}"
            await asyncio.sleep(AGAIN_SECONDS)

    async def _follow_once(self) -> None:
        try:
            door = await asyncio.to_thread(door_of, self._folder)
            reader, writer = await asyncio.open_unix_connection(door)
        except (OSError, ValueError):  # none runs here
            await self._read_store()
            return
        self._connected = True
        try:
            await self._follow(reader, writer)
        finally:
            self._connected = self._served = False
            self._writer, self._due = None, 0.0
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(_Gone())
            self._waiting.clear()
            writer.close()

    # While it runs

    async def _follow(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Follow one monitor until it has gone."""
        buffer, received = bytearray(), DifferenceReader()
        while True:
            try:
                async with asyncio.timeout(1.0):
                    data = await reader.read(_CHUNK)
            except TimeoutError:
                silent = time.monotonic() - self._last_message > SILENT_SECONDS
                self._lose(silent and (self.hub.viewers > 0 or not self._served))
                continue
            except OSError:
                return
            buffer += data
            for each in cut(buffer):
                try:
                    self._hear(TO_PAGE.decode(each), received, writer)
                except ProtocolError as error:
                    raise WrongQuestion(f"its monitor is of another version of Falkirk: {error}", 503) from error
            if not data:
                return

    def _hear(
        self, message: Serve | Passed | Seen | PageAnswer, received: DifferenceReader, writer: StreamWriter
    ) -> None:
        self._last_message = time.monotonic()
        match message:
            case Serve(layout):
                self._begin(layout, writer)
            case Passed(events):
                self._take(events)
            case Seen():
                self.hub.publish(received.next(message))
            case PageAnswer(number, found, error, status):
                future = self._waiting.pop(number, None)
                if future is not None and not future.done():
                    if error:
                        future.set_exception(WrongQuestion(error, status))
                    else:
                        future.set_result(found)
        if self._served:
            self._lose(False)

    def _begin(self, layout: Layout, writer: StreamWriter) -> None:
        identity = _identity(self._address)
        if identity != self._identity and self._identity is not None:
            self._forget()
        self._identity, self._kept, self._read = identity, None, None
        self.hub.know(layout)
        self._writer, self._served = writer, True
        self._looked()
        self._tell(PageQuestion(0, OfJob()))

    def _lose(self, lost: bool) -> None:
        seen = self.hub.view.observation if self.hub.view is not None else None
        self.hub.lose(lost and seen is not None and seen.verdict.state not in OVER)

    def _looked(self) -> None:
        self._tell(Looking(self.hub.viewers, tuple(sorted(set(self.hub.closely.values())))))

    def _tell(self, message: Looking | PageQuestion) -> None:
        if self._writer is not None and self._served:
            with suppress(OSError, RuntimeError):  # it is gone, which is read
                self._writer.write(frame(encode(message)))

    async def _answer(self, question: Question) -> bytes:
        while True:
            while not self._served and self._kept is None and self.hub.layout is not None:
                await asyncio.sleep(_SOON_SECONDS)  # between two monitors, or before its store is read
            if not self._served:
                return await super()._answer(question)
            with suppress(_Gone):
                return await self._put(question)

    async def _put(self, question: Question) -> bytes:
        self._asked += 1
        number = self._asked
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._tell(PageQuestion(number, question))
        try:
            return await future
        finally:
            self._waiting.pop(number, None)

    # When it does not

    async def _read_store(self) -> None:
        """Show the store, unless it is as it was."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _STORE_SECONDS
        try:
            state, job = await asyncio.to_thread(_recorded, self._address, self._read)
        except FalkirkError as error:
            self._nothing = str(error)
            self._lose(True)
            return
        self._read = state
        if job is None:
            return
        if self._identity not in (None, job.identity):
            self._forget()
        self._identity = job.identity
        self.show(job)


def _recorded(address: StoreAddress, read: object) -> tuple[object, RecordedJob | None]:
    """State of a store, and its job unless `read`; raises FalkirkError."""
    with address.open() as store:
        state = tuple(store.names(""))
        return state, None if state == read else RecordedJob(store)


def _identity(address: StoreAddress) -> bytes | None:
    with suppress(FalkirkError), address.open() as store:
        return store_id(store)
    return None
