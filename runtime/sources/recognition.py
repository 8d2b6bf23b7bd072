"""Recognition of input read again: it must equal what the saved job had read."""

from __future__ import annotations

from runtime.sources.fingerprint import Content, is_of_input, of_input
from runtime.sources.positions import Mark, PartitionPosition
from timely.errors import FalkirkError, OperatorError, SourceError, error_text
from timely.io.interface import ChecksummedPartition, Chunk, Partition, Position, Wait

_MOST_WAITS = 1000
"""Consecutive waits tolerated from a partition when an epoch is read again."""


def fingerprint(partition: Partition, mark: Mark) -> int:
    """Fingerprint of the epoch before a mark; 0 if nothing was read or input is gone."""
    if not mark.content.counted:
        return mark.content.fingerprint()
    try:
        return _checksum(partition, mark.before, mark.position)
    except SourceError:
        return 0  # the job can do without: who reads this again will hear of it


def recognise(partition: Partition, place: PartitionPosition, anew: bool, clocked: bool) -> str:
    """Verify the epoch before a position by reading it once more.

    Going on where other input has come would mix two inputs.

    Args:
        anew: records read again go into another epoch.
        clocked: the partition may end its epochs elsewhere.

    Returns:
        A note if a partition without `read_until` could not be verified; "" otherwise.

    Raises SourceError for other input.
    """
    if is_of_input(place.fingerprint):
        if (
            not hasattr(partition, "checksum")
            or _checksum(partition, place.before, place.position) != place.fingerprint
        ):
            raise _other_input(partition, place, "what it holds")
        return ""
    partition.seek(place.before)
    again = getattr(partition, "read_until", None)
    content, epoch, waits = Content.like(place.fingerprint), None, 0
    while True:
        chunk = partition.read() if again is None else again(place.position)
        if isinstance(chunk, Wait):
            waits += 1
            if waits > _MOST_WAITS:
                return _note(partition, "has nothing yet where it is read again", "comes")
            continue
        one = again is None and not anew  # otherwise it may be several of the partition's
        another = one and epoch is not None and isinstance(chunk, Chunk) and chunk.epoch != epoch
        if not isinstance(chunk, Chunk) or (another and content.rows):
            if one and clocked and content.rows:  # it has passed the place
                return _note(partition, "is cut otherwise when it is read again", "goes into epochs")
            break
        epoch, waits = chunk.epoch, 0
        if chunk.data is not None and len(chunk.data):
            content.add(chunk.data)
        if chunk.position == place.position:
            break
    if content.fingerprint() != place.fingerprint:
        count = f"{content.rows:,} record{'' if content.rows == 1 else 's'}"
        raise _other_input(partition, place, f"the epoch of {count}" if content.rows else "no record")
    return ""


def _note(partition: Partition, why: str, does: str) -> str:
    """Note for the user about a partition with a pace of its own."""
    return (
        f"partition {partition.name} {why}, so nobody knows that it holds "
        f"what it held when the job was saved. If its input {does} at a pace of its own, let it have read_until(position)"
    )


def _checksum(partition: Partition, begin: Position, end: Position) -> int:
    """Fingerprint of the input between two positions, by the partition's checksum."""
    asked: ChecksummedPartition = partition  # type: ignore[assignment]  # of any other records were picked out
    try:
        return of_input(asked.checksum(begin, end))
    except FalkirkError:
        raise
    except Exception as error:
        raise OperatorError(f"partition {partition.name}: its checksum() failed: {error_text(error)}") from error


def _other_input(partition: Partition, place: PartitionPosition, what: str) -> SourceError:
    """Error about changed input before a saved position; `what` has changed."""
    return SourceError(
        f"partition {partition.name} holds something else than when the job was saved: {what} before position "
        f"{place.position!r} is not what was read then. Bring the input back as it was, and the source's arguments, "
        "or start anew with an empty store"
    )
