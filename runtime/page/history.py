"""Reader of a job's history: moments for its page, in the page's own process.

Files are read again when they have changed, and only when somebody asks.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

from monitor.history.archive import FACTS, NOW, Archive
from monitor.history.files import segments
from monitor.web.past import PastJob
from monitor.web.view import Observation
from runtime.page.protocol import TO_PAGE, DifferenceReader, Seen
from timely.errors import ProtocolError

T = TypeVar("T")

_MOST_KEPT = 16
_MOST_BYTES = 1 << 28


class HistoryFiles:
    """Moments of the history in `folder`; see `monitor.web.app.History`.

    For any thread.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._lock = threading.Lock()
        self._archive = Archive()
        self._known: dict[str, tuple[int, int]] = {}
        self._kept: OrderedDict[int, PastJob] = OrderedDict()

    def read(self, question: Callable[[Archive], T]) -> T:
        """Answer to a question about the archive of all files as they are now."""
        with self._lock:
            return question(self._read())

    def at(self, moment: int) -> PastJob:
        """Job at a moment, in milliseconds since 1970. Raises Gone."""
        with self._lock:
            kept = self._kept.get(moment)
            if kept is not None:
                self._kept.move_to_end(moment)
                return kept
            archive = self._read()
            found = archive.at(moment)
            job = PastJob(found, observations(archive, moment))
            if archive.span is not None and moment <= archive.span[1]:  # nothing is added to it any more
                self._kept[moment] = job
                while len(self._kept) > _MOST_KEPT:
                    self._kept.popitem(last=False)
            return job

    def _read(self) -> Archive:
        """Recorded history of the job, from the files of its folder."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            names = []
        wanted = _wanted(names)
        for name in self._known.keys() - set(wanted):
            del self._known[name]
            self._archive.forget(name)
        for name in wanted:
            self._take(name)
        return self._archive

    def _take(self, name: str) -> None:
        path = self._folder / name
        for _ in range(2):
            try:
                status = path.stat()
                state = status.st_size, status.st_mtime_ns
                if self._known.get(name) == state:
                    return
                self._archive.take(name, path.read_bytes())
            except FileNotFoundError:  # deleted since
                self._known.pop(name, None)
                self._archive.forget(name)
                return
            self._known[name] = state
            if name not in self._archive.problems:
                return  # else it may just be written to: it is read once more


class BundledHistory(HistoryFiles):
    """Moments of the history in a bundle: files by name."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(os.curdir)
        for name in _wanted(files):
            self._archive.take(name, files[name])

    def _read(self) -> Archive:
        return self._archive


def _wanted(names: Collection[str]) -> list[str]:
    """Files of a history in the order of reading.

    The present minute first: what is packed in the meantime is found twice, and never not at all.
    """
    full = [name for name in names if name.startswith("full-")]
    return [name for name in (NOW, FACTS) if name in names] + segments(names) + full


def observations(archive: Archive, moment: int) -> list[Observation]:
    """Recorded observations until a moment, whole; none if one is unreadable."""
    reader = DifferenceReader()
    found = []
    try:
        for _, data in archive.full_until(moment):
            unpacker = zlib.decompressobj()
            seen = TO_PAGE.decode(unpacker.decompress(data, _MOST_BYTES))
            if not isinstance(seen, Seen):
                return []
            found.append(reader.next(seen))
    except (ProtocolError, zlib.error, KeyError) as error:
        archive.problems["full"] = f"a minute in full cannot be read: {error}"
        return []
    return found
