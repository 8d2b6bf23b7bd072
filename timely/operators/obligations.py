"""Obligations of operators: the divisions of their input over which they repeat.

After a failure a time may be done again. Its records are then the same, but exchanges, logs, gathering sources and queues may
divide them into other batches, in another order. Survivors keep what came of a time only where that makes no difference, so
each operator declares for each input what it repeats over; one that declares nothing is taken for the weakest.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

from timely.errors import GraphError

RepeatsOver = Literal["record", "time", "batch"]

Declared = RepeatsOver | tuple[RepeatsOver, ...]
"""Declaration by an operator: one for all of its inputs, or one for each."""


class Obligation(IntEnum):
    """Granularity of deterministic output; a greater one promises more."""

    BATCH = 0
    """Same output for the same batches in the same order."""
    TIME = 1
    """Same output for the same records at each time, in any batches and order."""
    RECORD = 2
    """Same output for the same records, in any batches and order, also at other times."""


_NAMES = {"batch": Obligation.BATCH, "time": Obligation.TIME, "record": Obligation.RECORD}


def obligations(declared: object, inputs: int, who: object) -> tuple[Obligation, ...]:
    """Obligation for each of `inputs` inputs.

    `declared` is one for all of them, or a tuple with one for each.

    Raises:
        GraphError: `who`, an operator, has declared something else.

    >>> [each.name for each in obligations(("record", "time"), 2, "it")]
    ['RECORD', 'TIME']
    """
    each = declared if isinstance(declared, tuple) else (declared,) * inputs
    if len(each) != inputs or not all(isinstance(name, str) and name in _NAMES for name in each):
        raise GraphError(
            f"the {who} declares repeats_over = {declared!r}; it must be 'record', 'time' or 'batch', or a tuple with one of "
            f"these for each of its {inputs} input{'' if inputs == 1 else 's'}"
        )
    return tuple(_NAMES[str(name)] for name in each)
