"""Reading of a journal: needed segments, damaged ones, and their content.

**Damage.** The newest segment says which earlier ones are needed (`recovery.store.journal`). One of those that is missing or
damaged held something that is needed, and it was acknowledged: a writer puts one segment at a time, so that the next one is
written only after the store said that this one is durable. There is no going on without it, and the error names all such files.

The newest segment itself may be one that was never acknowledged. Stores write whole blobs and sync them before anybody sees
them, so even that one is there either whole or not at all, unless a disk lost writes that it had claimed to have made. Then
its end is missing, and nobody was told that it is durable: `take_over` sets it aside, as ".damaged", and says so. If it is
whole in length but its checksums are wrong, it was written and has decayed since, perhaps after it was acknowledged: an error.
Whoever knows more, because the owner's reports tell which number was acknowledged, passes it as `acknowledged`: then also a
cut-off newest segment, or a missing one, is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from recovery.store.interface import AlreadyThere, NotThere, Store, StoreBusy, StoreCorrupt, whose
from recovery.store.journal import Journal
from recovery.store.segments import Section, SegmentMeta, decode_segment, segment_name, segment_number

_MOST_MISSING = 1000


@dataclass(frozen=True, slots=True)
class Survey:
    """Journal as found in the store.

    Args:
        newest: the newest segment; None if there is none.
        torn: the name of a segment behind it that was cut off while it was written, if there is one.
        fences: the numbers of all fences, in rising order.
        leftovers: names of segments that are no longer needed, and can be deleted if no other incarnation is writing.
    """

    store: Store
    store_id: bytes
    owner: str
    newest: SegmentMeta | None
    torn: str | None
    fences: tuple[int, ...]
    leftovers: tuple[str, ...]

    def read(
        self, known: Mapping[int, tuple[SegmentMeta, list[Section]]] | None = None
    ) -> Iterator[tuple[SegmentMeta, list[Section]]]:
        """Needed segments in order of number, one at a time in memory, without fences.

        Those that are `known` by their numbers are not read again.

        Raises:
            StoreCorrupt: if any is missing or damaged; it names all of them.
            StoreBusy: if another incarnation has written since, and so may have deleted what was needed then.
        """
        newest = self.newest
        if newest is None:
            return
        problems: list[StoreCorrupt] = []
        itself = () if newest.is_fence else (newest.number,)
        for number in (*newest.needed_numbers(), *itself):
            name = segment_name(self.owner, number)
            try:
                if known is not None and number in known:
                    segment = known[number]
                else:
                    segment = read_segment(self.store, self.owner, self.store_id, number)
            except NotThere:
                if any(each > newest.number for each in numbers_of(self.store, self.owner)):
                    what = f"the journal of {self.owner} is being written by another process; read it again"
                    raise StoreBusy(what, None) from None
                text = f"the file is missing, and {segment_name(self.owner, newest.number)} needs it"
                problems.append(StoreCorrupt(name, 0, text))
            except StoreCorrupt as error:
                problems.append(error)
            else:
                if not problems:
                    yield segment
        if len(problems) == 1:
            raise problems[0]
        if problems:
            first = problems[0]
            others = "; ".join(f"{each.name} at byte {each.offset}: {each.what}" for each in problems[1:])
            raise StoreCorrupt(first.name, first.offset, f"{first.what}; and so are others: {others}")


def survey(store: Store, owner: str, store_id: bytes, acknowledged: int = -1) -> Survey:
    """Find the segments of `owner`'s journal, without changing anything.

    Of the segments it reads the newest.

    Args:
        acknowledged: a number that is known to have been durable, if any is known.

    Raises:
        StoreCorrupt: if the newest segment is damaged in another way than by being cut off, or is older than `acknowledged`.
    """
    numbers = numbers_of(store, owner)
    torn: str | None = None
    newest: SegmentMeta | None = None
    while numbers:
        number = numbers[-1]
        try:
            newest, _ = read_segment(store, owner, store_id, number)
            break
        except NotThere:  # another incarnation deleted it, and wrote a later one before
            numbers, torn = numbers_of(store, owner), None
            if numbers and numbers[-1] == number:
                raise StoreCorrupt(segment_name(owner, number), 0, "the file is listed, but cannot be read") from None
        except StoreCorrupt as error:
            if not error.torn or torn is not None or number <= acknowledged:
                raise
            torn = error.name
            numbers.pop()
    if acknowledged > (newest.number if newest is not None else -1):
        raise StoreCorrupt(segment_name(owner, acknowledged), 0, "the file is missing, and it was durable before")
    if newest is not None:
        wanted = sum(last - first for first, last in newest.needed)
        if wanted > 2 * len(numbers) + _MOST_MISSING:  # so many cannot be named one by one
            what = f"it needs more than {wanted:,} segments, and there are {len(numbers):,}"
            raise StoreCorrupt(segment_name(owner, newest.number), 0, what)
    fences = _fences(store, owner, store_id, newest)
    kept = {*newest.needed_numbers(), *fences, newest.number} if newest is not None else set()
    leftovers = tuple(segment_name(owner, number) for number in numbers if number not in kept)
    return Survey(store, store_id, owner, newest, torn, fences, leftovers)


def read_all(store: Store, owner: str, store_id: bytes) -> Iterator[tuple[SegmentMeta, list[Section]]]:
    """Needed segments of a journal, in order: `survey` and `Survey.read`."""
    return survey(store, owner, store_id).read()


def last_writer(store: Store, owner: str, store_id: bytes) -> int | None:
    """Incarnation of the newest segment or fence; None for none."""
    newest = survey(store, owner, store_id).newest
    return None if newest is None else newest.incarnation


def take_over(
    store: Store, owner: str, store_id: bytes, incarnation: int, acknowledged: int = -1
) -> tuple[Journal, Survey, list[str]]:
    """Become the only writer of a journal, new or old, by fencing off all others.

    A segment that was cut off is set aside.

    Args:
        incarnation: of this process; no other process may have or have had it for this owner.
        acknowledged: see `survey`.

    Returns:
        The journal; what is now to be read (and told to `Journal.recovered`, before `Journal.resume`); and warnings.
    """
    warnings: list[str] = []
    found = survey(store, owner, store_id, acknowledged)
    journal = Journal(owner, store_id, incarnation, found.newest, found.fences)
    while True:
        if found.torn is not None:
            warnings.append(_set_aside(store, found.torn))
        name, parts = journal.fence()
        try:
            store.put(name, parts)
            break
        except AlreadyThere:
            found = survey(store, owner, store_id, acknowledged)
            if found.newest is None:  # what took the number was cut off
                journal = Journal(owner, store_id, incarnation)
            elif journal.is_mine(found.newest):
                break
            else:
                journal.overtaken(found.newest, found.fences)
    journal.stored(name)
    return journal, survey(store, owner, store_id), warnings


def _set_aside(store: Store, name: str) -> str:
    data = store.get(name)
    aside = f"{name}.damaged"
    extra = 1
    while True:
        try:
            store.put(aside, [data])
            break
        except AlreadyThere:
            extra += 1
            aside = f"{name}.damaged-{extra}"
    store.delete(name)
    return (
        f"{name} was cut off after {len(data):,} bytes, and is now {aside}. It is {whose(name)}. If its writer died before it "
        "could tell anybody that this was durable, only work is lost. If not, the job goes back further than was promised, or "
        "refuses to go on and says why. Either should not happen: does the disk keep what it says it has synced?"
    )


def numbers_of(store: Store, owner: str) -> list[int]:
    """Numbers of the segments of a journal, in rising order."""
    numbers = (segment_number(name) for name in store.names(f"{owner}/"))
    return sorted(number for number in numbers if number is not None)


def _fences(store: Store, owner: str, store_id: bytes, newest: SegmentMeta | None) -> tuple[int, ...]:
    if newest is None:
        return ()
    fence = newest
    if not newest.is_fence:
        try:
            fence, _ = read_segment(store, owner, store_id, newest.fence)
        except NotThere:
            name = segment_name(owner, newest.fence)
            raise StoreCorrupt(name, 0, "the file is missing: it must stay as long as the store") from None
    return (*fence.fences, fence.number)


def read_segment(store: Store, owner: str, store_id: bytes, number: int) -> tuple[SegmentMeta, list[Section]]:
    """One segment of a journal; raises StoreCorrupt, or NotThere."""
    name = segment_name(owner, number)
    meta, sections = decode_segment(store.get(name), name, store_id)
    if (meta.owner, meta.number) != (owner, number):
        raise StoreCorrupt(
            name,
            64,
            f"it is segment {meta.number} of {meta.owner}",
            "give the files of the store their old names again",
        )
    ends = [-1, *(each for pair in meta.needed for each in pair), meta.number]
    if any(first > last for first, last in meta.needed) or any(a >= b for a, b in zip(ends[::2], ends[1::2])):
        raise StoreCorrupt(name, 64, "the segments that it needs are not earlier ones in rising order")
    return meta, sections
