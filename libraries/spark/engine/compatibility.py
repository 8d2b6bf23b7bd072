"""Compatibility of a program with states kept in a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from timely.data.codec.typed import shown
from timely.dataflow.fingerprint import differences
from timely.errors import FalkirkError


class KeptProgram(msgspec.Struct, frozen=True):
    """Identity of a program: operators, stream columns, and a query for each state.

    What functions do may change.
    """

    outline: dict[str, dict[str, Any]]
    columns: dict[str, str]
    states: dict[str, str]

    def changes(self, now: KeptProgram, verbs: dict[str, str]) -> Iterator[str]:
        """Differences from another program, a line each; `verbs` names the states' verbs."""
        yield from differences(self.outline, now.outline)
        if self.columns != now.columns:
            yield f"the columns of the stream were {self.columns} and are {now.columns}"
        for name, query in now.states.items():
            if self.states.get(name) != query:
                yield f"{verbs[name]} keeps something else than it did"


_decoder = msgspec.json.Decoder(KeptProgram)


def read_program(data: bytes) -> KeptProgram:
    """Decode a stored program; FalkirkError if it is invalid."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FalkirkError(
            f"the store does not say of which program it is ({shown(error)}): bring all of it back, or choose an empty one"
        ) from None
