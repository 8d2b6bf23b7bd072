"""Published outcomes of runs, named by their input, for reuse by repeated runs.

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
"""Element of a message from compute to read: routing key, file path, or the rows.

The worker that is to read it owns the key.
"""


class Outcome(msgspec.Struct, frozen=True):
    """Outcome of a run: workers' shares, consumers' entries; `ran`: not left out."""

    ran: bool
    shares: list[Share] = []
    handed: list[list[ManifestEntry]] = []

    @property
    def deliveries(self) -> list[list[Share] | list[ManifestEntry]]:
        """Messages by output port."""
        return [self.shares, *self.handed]


_OUTCOME: Typed[Outcome] = Typed("what came of a run", Outcome)


def name_of(epoch: int, run: Manifested, deliveries: Sequence[object]) -> str:
    """Name of a run at `epoch`, from all that its outcome depends on.

    `deliveries` is what else that is, such as the number of workers.
    """
    first, entries, schemas, pinned = run
    inputs = []
    for name, schema in schemas:
        mine = [entry for entry in entries if entry.input == name]
        inputs.append((name, schema, sum(entry.rows for entry in mine), add_up(entry.digest for entry in mine)))
    content = msgspec.msgpack.encode([first, inputs, pinned, deliveries])
    return f"{named_by(epoch)}-{blake2b(content, digest_size=16).hexdigest()}"


def digest_of_file(run: str, number: int) -> int:
    """Digest for the rows of a run's output file, from the run's name and file number.

    Its outcome never changes, so its name stands for them.
    """
    return int(blake2b(f"{run}-{number}".encode(), digest_size=7).hexdigest(), 16)


def published(path: Path, run: Callable[[], Outcome]) -> Outcome:
    """Published outcome at `path`; if there is none, publish the result of `run`."""
    with suppress(FileNotFoundError):
        return _OUTCOME.decode(path.read_bytes())
    return _OUTCOME.decode(write_once(path, msgspec.msgpack.encode(run()), durable=False))
