"""Bundles: a job without its data, in one zip file.

Plan, options, decision, events, history and versions.

What the program handles is not in it: no state, no log, no message, and no text of an error, for that may quote a record.
So minutes in full are left out, too.
Reading trusts nothing: sizes are bounded, names are known ones, nothing is extracted to a disk.
"""

from __future__ import annotations

import os
import re
import time
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from monitor.coordination.options import Options, OptionsRecord
from monitor.coordination.records import KeptDecision, KeptEvent, SavedJob
from monitor.explain.verdict import Verdict
from monitor.history.archive import FACTS
from monitor.history.facts import FACT_OF, Happening
from monitor.history.facts import encode as encode_fact
from monitor.history.files import FACT, framed, records
from monitor.web.fold import fold, group_tree
from monitor.web.graph_page import graph_page
from monitor.web.view import View
from recovery.layout import Layout
from recovery.protocol import Observed
from recovery.store.address import StoreAddress
from runtime.folders.store_folder import StoreFolder
from runtime.page.address import door_of
from runtime.page.caller import Caller
from runtime.page.recorded import KeptJob, RecordedJob
from runtime.page.recorder import versions
from timely.data.codec.typed import Typed
from timely.errors import FalkirkError, ProtocolError

FORMAT = 1
"""Number of the format of bundles."""

MOST_BYTES = 512 << 20
"""Most bytes of a bundle, unpacked: a history has at most 64 MB of minutes."""

MOST_FILES = 4096

_NAME = re.compile(r"manifest\.json|job|history/(facts|now|past-[0-9]{8,20})")
_QUOTING = frozenset({"text", "trace", "output", "words"})
_OUR_WORDS = frozenset({"monitor", "page", "began", "stopped", "killed"})
"""Kinds of events with texts of Falkirk's own."""
_LEFT_OUT = "(its text is not in the bundle: it may quote data)"
_ANSWER_SECONDS = 10.0


class BundleError(FalkirkError):
    """Error of a bundle: no bundle at all, or not readable or writable."""


class Manifest(msgspec.Struct, frozen=True):
    """Head of a bundle: format, versions, and time in seconds since 1970."""

    format: int
    falkirk: str
    made: float
    store: str
    versions: dict[str, str]


class _Job(msgspec.Struct, frozen=True):
    """State of a job at rest, without its data."""

    layout: Layout
    watermarks: tuple[tuple[tuple[int, ...], ...], ...] | None
    decision: KeptDecision | None
    events: tuple[KeptEvent, ...]
    finished: bool
    options: OptionsRecord
    samples: dict[int, tuple[float, Observed]]
    verdict: Verdict


_JOB: Typed[_Job] = Typed("the job of a bundle", _Job)
_MANIFEST = msgspec.json.Decoder(Manifest)


class BundledJob(KeptJob):
    """Job read from a bundle.

    Attributes:
        manifest: of the bundle.
        history: files of its history, by name.
    """

    def __init__(self, manifest: Manifest, job: _Job, history: dict[str, bytes]) -> None:
        saved = SavedJob(job.layout, job.watermarks, job.decision, job.events, job.finished)
        super().__init__(job.layout, Options.of_record(job.layout, job.options), saved, job.verdict)
        self.samples = job.samples
        self.manifest, self.history = manifest, history


def write_bundle(address: StoreAddress, out: Path) -> int:
    """Write the bundle of the job of a store; returns its size in bytes.

    Raises BundleError if it cannot be written, or the file is there already; FalkirkError if there is no job.
    """
    with address.open() as store:
        job = RecordedJob(store)
    folder = StoreFolder(address)
    made = _Job(
        job.layout,
        job.saved.watermarks,
        job.saved.decision,
        tuple(map(_without_quotes, job.saved.events)),
        job.saved.finished,
        job.options.record(),
        job.samples,
        _verdict(job, folder),
    )
    behind = versions()
    manifest = Manifest(FORMAT, behind.get("falkirk", "unknown"), time.time(), job.layout.name, behind)
    try:
        with (
            open(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            archive.writestr("manifest.json", msgspec.json.encode(manifest))
            archive.writestr("job", msgspec.msgpack.encode(made))
            for name, data in sorted(_history(folder.history).items()):
                archive.writestr(f"history/{name}", data)
        return out.stat().st_size
    except FileExistsError:
        raise BundleError(f"{out} is there already: choose another name") from None
    except OSError as error:
        raise BundleError(f"the bundle cannot be written to {out}: {error.strerror or error}") from error


def read_bundle(file: Path) -> BundledJob:
    """Job of a bundle. Raises BundleError for anything else."""
    try:
        with zipfile.ZipFile(file) as archive:
            found = _contents(file, archive)
        manifest = _manifest(file, found.pop("manifest.json", b""))
        job = _JOB.decode(found.pop("job", b""))
        made = BundledJob(manifest, job, {name.removeprefix("history/"): data for name, data in found.items()})
        _check(file, made)
        return made
    except BundleError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise BundleError(f"{file} is no bundle of falkirk, or is damaged: {error}") from error
    except OSError as error:
        raise BundleError(f"{file} cannot be read: {error.strerror or error}") from error
    except FalkirkError as error:
        raise BundleError(f"{file} is no bundle that can be read here: {error}") from error


def _contents(file: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    """Content of each file of a bundle, within the bounds."""
    infos = archive.infolist()
    if len(infos) > MOST_FILES or sum(info.file_size for info in infos) > MOST_BYTES:
        raise BundleError(f"{file} is larger than any bundle: more than {MOST_FILES:,} files or {MOST_BYTES >> 20} MB")
    found: dict[str, bytes] = {}
    for info in infos:
        if not _NAME.fullmatch(info.filename) or info.filename in found:
            raise BundleError(f"{file} is no bundle of falkirk: there is {info.filename!r} in it")
        with archive.open(info) as part:  # gives no more than was declared, and checks the sum
            found[info.filename] = part.read(info.file_size)
    return found


def _manifest(file: Path, data: bytes) -> Manifest:
    try:
        number = msgspec.json.decode(data, type=dict[str, Any]).get("format")
        if number != FORMAT:
            raise BundleError(
                f"{file} is a bundle of another version: its format is {number}, and this Falkirk reads {FORMAT}"
            )
        return _MANIFEST.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{file} is no bundle of falkirk: {error}") from error


def _check(file: Path, job: BundledJob) -> None:
    """Raise BundleError for parts of different jobs: nothing can be drawn of them."""
    try:
        layout = job.layout
        graph_page(layout, fold(layout, group_tree(layout)))
        view = View(layout)
        view.update(job.observe())
        view.totals()
        view.workers()
    except (IndexError, KeyError, TypeError, ValueError, AssertionError, OverflowError, RecursionError) as error:
        raise BundleError(f"{file} is damaged: its parts do not fit each other ({type(error).__name__})") from error


def _verdict(job: RecordedJob, folder: StoreFolder) -> Verdict:
    """Verdict on the job, of its monitor if it runs."""
    with (
        suppress(OSError, ProtocolError),
        Caller(door_of(folder), _ANSWER_SECONDS) as caller,
    ):
        return _quiet(caller.observe().verdict)
    return _quiet(job.verdict)


def _quiet(verdict: Verdict) -> Verdict:
    """Verdict without the text of an error of the program."""
    if verdict.state != "failed":
        return verdict
    return msgspec.structs.replace(verdict, text=f"failed {_LEFT_OUT}", trace="")


def _without_quotes(event: KeptEvent) -> KeptEvent:
    """Event without texts of the program."""
    return event if event.kind in _OUR_WORDS else msgspec.structs.replace(event, data=_unquoted(event.data))


def _unquoted(value: Any) -> Any:
    """Data of an event, at any depth, with what may quote data left out."""
    if isinstance(value, list):
        return list(map(_unquoted, value))
    if isinstance(value, dict):
        return {name: _LEFT_OUT if name in _QUOTING and each else _unquoted(each) for name, each in value.items()}
    return value


def _history(folder: Path) -> dict[str, bytes]:
    """Files of the history, facts without quotes."""
    found = {}
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if not _NAME.fullmatch(f"history/{name}"):
                continue
            with suppress(FileNotFoundError):  # a minute that has just been deleted
                data = (folder / name).read_bytes()
                found[name] = _quiet_facts(data) if name == FACTS else data
    return found


def _quiet_facts(data: bytes) -> bytes:
    parts = []
    for record in records(data)[0]:
        with suppress(ProtocolError):
            fact = FACT_OF.decode(record.data)
            if isinstance(fact, Happening):
                fact = Happening(_without_quotes(fact.event))
            parts.append(framed(FACT, encode_fact(fact)))
    return b"".join(parts)
