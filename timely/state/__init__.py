"""State of operators, in versions by time.

`interface` has the protocol required by recovery. Enters: what an operator adds at a time. Leaves: its sum as of a
time, and runs, of which checkpoints are made. Pure.
"""

from timely.state.interface import Run, Scan, Scannable, State, StateSize, is_transient
from timely.state.keyed import KeyedState
from timely.state.parts import Parts
from timely.state.timed import TimedBatches, TimedValues

__all__ = [
    "KeyedState",
    "Parts",
    "Run",
    "Scan",
    "Scannable",
    "State",
    "StateSize",
    "TimedBatches",
    "TimedValues",
    "is_transient",
]
