"""Pinned file lists of tables: listed once per run, the same for each attempt.

Files come and go in a folder. What Spark finds there depends on when it looks, and it looks once a session. So *gather* looks,
when an epoch is complete, and what it found goes with the run. It is noted beside the region's files, too: so the run has the
same list even after a failure for which no cut knows of it.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote
from zlib import crc32

import msgspec

from libraries.spark.errors import SparkError
from libraries.spark.files.parquet import named_by, write_once
from libraries.spark.files.pinned_file import PinnedFile
from timely.data.codec.typed import Typed

SUFFIX = ".tables"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_CHOICE = re.compile(r"\{([^{}]*)\}")


def local_path(path: str) -> str:
    """Local path without a `file:` prefix; SparkError for a remote file system."""
    if not _SCHEME.match(path):
        return path
    scheme, rest = path.split(":", 1)
    if scheme.lower() != "file":
        raise SparkError(
            f"files at {scheme}: cannot be listed here; give a function, lambda session: session.read.parquet({path!r}), "
            "which each attempt at a run calls anew"
        )
    return unquote("/" + rest.lstrip("/"))


class _Noted(msgspec.Struct, frozen=True):
    """Files found for an epoch's run: name, path and files of each table."""

    tables: list[tuple[str, str, list[PinnedFile]]]


_NOTED: Typed[_Noted] = Typed("a list of the files of tables", _Noted)


def pin_once(folder: Path, epoch: int, tables: Mapping[str, str], durable: bool) -> list[tuple[str, list[PinnedFile]]]:
    """Pinned files of each table for an epoch's run; if `durable`, noted in `folder`.

    Raises SparkError.
    """
    note = folder / f"{named_by(epoch)}-{crc32(msgspec.msgpack.encode(list(tables.items()))):08x}{SUFFIX}"
    noted: _Noted | None = None
    if durable:
        with suppress(FileNotFoundError):
            noted = _NOTED.decode(note.read_bytes())
    if noted is None:
        noted = _Noted([(name, path, pin(name, path)) for name, path in tables.items()])
        if durable:
            noted = _NOTED.decode(write_once(note, msgspec.msgpack.encode(noted), durable))
    return [(name, files) for name, _, files in noted.tables]


def pin(name: str, path: str) -> list[PinnedFile]:
    """Current files of the table `name`: one file, a folder's, or a pattern's.

    Raises:
        SparkError: if there are none.
    """
    found = []
    for root in _roots(path):
        if os.path.isdir(root):
            found += [_pinned(root, each) for each in _below(root)]
        else:
            found.append(_pinned(os.path.dirname(root), root))
    there = sorted(each for each in found if each is not None)
    if not there:
        raise SparkError(f"table {name!r}: there are no files at {os.path.abspath(path)}")
    return there


def check(name: str, files: Iterable[PinnedFile]) -> None:
    """Raise SparkError for a missing or changed file."""
    for file in files:
        try:
            now = os.stat(file.path)
        except OSError as error:
            what = f"is gone ({error.strerror})"
        else:
            if (now.st_size, now.st_mtime_ns) == (file.size, file.modified):
                continue
            what = f"has changed (it had {file.size} bytes, and has {now.st_size}; or its time differs)"
        raise SparkError(
            f"table {name!r}: the run was to read {file.path}, which {what}. Bring it back as it was, or begin anew with an "
            "empty store. While a job reads a folder files may come to it, whole, by a rename; they must stay"
        )


def _roots(path: str) -> list[str]:
    path = os.path.abspath(local_path(path))
    if os.path.exists(path):
        return [path]
    return sorted({root for each in _choices(path) for root in glob.glob(each) if not _hidden(os.path.basename(root))})


def _choices(pattern: str) -> Iterator[str]:
    """Expand braces in a pattern: {a,b} stands for a and for b."""
    choice = _CHOICE.search(pattern)
    if choice is None:
        yield pattern
        return
    for each in choice[1].split(","):
        yield from _choices(pattern[: choice.start()] + each + pattern[choice.end() :])


def _below(folder: str) -> Iterator[str]:
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [each for each in folders if not _hidden(each)]
        for name in names:
            if not _hidden(name):
                yield os.path.join(place, name)


def _hidden(name: str) -> bool:
    """True for names ignored by Spark: `_temporary`, checksums, unfinished copies."""
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")


def _pinned(base: str, path: str) -> PinnedFile | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:  # it went while the folder was read
        return None
    return PinnedFile(base, path, status.st_size, status.st_mtime_ns)
