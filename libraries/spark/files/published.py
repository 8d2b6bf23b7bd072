"""Outcomes of runs, published under a name for their input: who does a run again takes that, and Spark does not run.

The name says of which epochs a run is, over which rows, whoever wrote them, in whatever order and files, and who is told what
comes out. So whatever the region's function does, and however Spark deals rows out, a run gives the same when it is done
again: the same files for each worker, or that the period has left it out. What is published never changes. It counts while some
process of the job lives: if none does nobody has anything of a run that was not durable, and the program may have been mended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

import msgspec

from libraries.spark.files.manifest import Manifested, ManifestEntry
from libraries.spark.files.parquet import add_up, named_by, write_once
from timely.data.codec.typed import Typed

Share: TypeAlias = tuple[int, str, bytes]
"""An element of a message from compute to read: a key, which the worker that is to read it owns, and a file's path or rows."""


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a run: the shares of the workers, and the entries of the files of each consumer. `ran`: not left out."""

    ran: bool
    shares: list[Share] = []
    handed: list[list[ManifestEntry]] = []

    @property
    def told(self) -> list[list[Share] | list[ManifestEntry]]:
        """By port, what is to be told there."""
        return [self.shares, *self.handed]


_OUTCOME: Typed[Outcome] = Typed("what came of a run", Outcome)


def name_of(epoch: int, run: Manifested, told: Sequence[object]) -> str:
    """The name of a run at `epoch`. `told`: what else its outcome depends on, such as the number of workers."""
    first, entries, schemas, pinned = run
    inputs = []
    for name, schema in schemas:
        mine = [entry for entry in entries if entry.input == name]
        inputs.append((name, schema, sum(entry.rows for entry in mine), add_up(entry.digest for entry in mine)))
    content = msgspec.msgpack.encode([first, inputs, pinned, told])
    return f"{named_by(epoch)}-{blake2b(content, digest_size=16).hexdigest()}"


def digest_of_file(run: str, number: int) -> int:
    """The digest of the rows that a run has written into one of its files: its outcome never changes, so its name stands for
    them."""
    return int(blake2b(f"{run}-{number}".encode(), digest_size=7).hexdigest(), 16)


def published(path: Path, run: Callable[[], Outcome]) -> Outcome:
    """The outcome of a run that is published at `path`: what `run` makes of it, unless somebody was there before."""
    with suppress(FileNotFoundError):
        return _OUTCOME.decode(path.read_bytes())
    return _OUTCOME.decode(write_once(path, msgspec.msgpack.encode(run()), durable=False))
