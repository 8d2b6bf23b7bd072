"""File discovery, fingerprints and checksums for sources."""

from __future__ import annotations

import glob
import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from zlib import crc32

from timely.errors import SourceError

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A file, a folder, a glob, or a list of these."""

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")
_SAMPLE = 4096

WHOLE = 1 << 17
"""Most bytes checksummed in full; larger extents are sampled.

Of more it takes `PIECES` pieces of `PIECE` bytes, evenly spread.
"""

PIECES, PIECE = 32, 1 << 12
"""Number and size of sampled pieces.

A cut reads them of each partition, on the worker's own time.
"""


def find_files(paths: Paths, suffixes: tuple[str, ...]) -> list[Path]:
    """Resolve `paths` into files.

    A folder stands for the files directly in it that end in one of `suffixes`, without those that begin with
    "." or "_" (temporary files and marks of other tools); a folder or glob gives its files sorted by name. A
    list keeps its order. Raises SourceError if there is nothing to read, or if a file would be read twice.
    """
    entries = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found = [file for entry in entries for file in _expand(os.fspath(entry), suffixes)]
    if not found:
        raise SourceError("there is nothing to read: the list of files is empty. Give at least one file or folder.")
    seen: set[str] = set()
    for file in found:
        if file.name.lower().endswith(_COMPRESSED):
            raise SourceError(
                f"{file}: compressed files are not read, because they cannot be re-read from the middle. Unpack it."
            )
        real = os.path.realpath(file)
        if real in seen:
            raise SourceError(f"{file}: this file is listed twice and would be counted twice. List it once.")
        seen.add(real)
    return found


def _expand(entry: str, suffixes: tuple[str, ...]) -> Iterable[Path]:
    path = Path(entry)
    if path.is_dir():
        found = _listed(path)
        files = sorted(f for f in found if f.is_file() and _wanted(f, suffixes))
        if not files:
            raise SourceError(
                f"{entry}: no file in this folder ends in {' or '.join(suffixes)}. Is it the right folder?"
            )
        return files
    if path.is_file():
        return [path]
    if path.exists():
        raise SourceError(
            f"{entry}: this is {_kind(path)}, not a file: it can be read only once, and recovery reads input again. Copy it "
            "into a file first, or read it with Iterable(lambda: open(path))."
        )
    if glob.has_magic(entry):
        files = sorted(Path(f) for f in glob.glob(entry, recursive=True) if os.path.isfile(f))
        if not files:
            raise SourceError(f"{entry}: no file matches. Relative names start from {os.getcwd()}.")
        return files
    where = "" if path.is_absolute() else f" (looked for from {os.getcwd()})"
    raise SourceError(f"{entry}: no such file or folder{where}. Check the path.")


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise cannot_read(folder, error) from error


def _kind(path: Path) -> str:
    """Kind of a path other than a file or folder."""
    if path.is_fifo():
        return "a named pipe"
    return "a socket" if path.is_socket() else "a device"


def _wanted(file: Path, suffixes: tuple[str, ...]) -> bool:
    return file.suffix.lower() in suffixes and not file.name.startswith((".", "_"))


def fingerprint(path: Path) -> str:
    """Fingerprint of a file: its size and a hash of the first and last 4 KiB.

    The same after a copy or a touch, another after an edit that matters.

    It guards positions: a byte offset into a file that has been replaced means nothing. An edit in the middle
    that keeps the length passes unnoticed; hashing whole files would cost more than reading them.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            head = os.pread(file.fileno(), _SAMPLE, 0)
            tail = os.pread(file.fileno(), _SAMPLE, max(0, size - _SAMPLE))
    except OSError as error:
        raise cannot_read(path, error) from error
    return f"{size}:{hashlib.blake2b(head + tail, digest_size=8).hexdigest()}"


def checksum(file: int, extents: Sequence[tuple[int, int]]) -> int:
    """Checksum of byte ranges of an open file, sampled if they are large.

    Each of `extents` is (begin, end).
    """
    sizes = [end - begin for begin, end in extents]
    ends = list(accumulate(sizes, initial=0))
    size, found = ends[-1], crc32(repr(sizes).encode())
    if size <= WHOLE:
        for begin, end in extents:
            found = crc32(os.pread(file, end - begin, begin), found)
        return found
    for piece in range(PIECES):
        start = piece * (size - PIECE) // (PIECES - 1)
        stop, extent = start + PIECE, bisect_right(ends, start) - 1
        while start < stop:
            at = extents[extent][0] + start - ends[extent]
            count = min(stop, ends[extent + 1]) - start
            found = crc32(os.pread(file, count, at), found)
            start, extent = start + count, extent + 1
    return found


def cannot_read(path: Path, error: OSError) -> SourceError:
    """Error for a file refused by the operating system."""
    return SourceError(
        f"{path}: cannot be read: {error.strerror or error}. Check that it exists and that you may read it."
    )
