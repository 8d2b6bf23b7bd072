"""Reading of a journal while its owner writes it, without changing anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from recovery.store.interface import Buffer, Store, StoreCorrupt
from recovery.store.reading import numbers_of, read_segment
from recovery.store.segments import Section, SegmentMeta, content_of


class GrowingJournal:
    """Journal of `owner`, read as it grows."""

    def __init__(self, store: Store, owner: str, store_id: bytes) -> None:
        self._of = store, owner, store_id
        self._newest: int | None = None
        """Newest segment at the last complete look."""
        self._number = -1
        self._sections: list[Section] = []

    def news(self) -> SegmentMeta | None:
        """Head of the newest segment if it is new since `seen`, else None.

        Raises NotThere if it was deleted meanwhile: then there is a newer one.
        """
        numbers = numbers_of(*self._of[:2])
        if not numbers or numbers[-1] == self._newest:
            return None
        try:
            return read_segment(*self._of, numbers[-1])[0]
        except StoreCorrupt as error:
            if error.torn:  # whoever takes over sets it aside
                return None
            raise

    def missing(self, newest: SegmentMeta, known: Collection[int]) -> Iterator[tuple[SegmentMeta, list[Section]]]:
        """Segments needed with `newest` and not yet known, in order of number.

        Raises NotThere as `news`, if one was deleted.
        """
        for number in (*newest.needed_numbers(), newest.number):
            if number not in known:
                yield read_segment(*self._of, number)

    def seen(self, newest: SegmentMeta) -> None:
        """Record `newest` as taken, with all before it."""
        self._newest = newest.number

    def payload(self, segment: int, index: int) -> Buffer:
        """Payload of a section, with the segment cached until the next; raises StoreError."""
        if segment != self._number:
            self._sections = []  # not two at once
            self._sections, self._number = read_segment(*self._of, segment)[1], segment
        return content_of(self._sections[index].payload)

    def forget(self) -> None:
        """Drop the cached segment."""
        self._sections, self._number = [], -1
