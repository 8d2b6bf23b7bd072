"""State of operators: what each keeps, in versions by time. `timely.state.interface` says what recovery asks of it."""

from timely.state.interface import Run, Scan, Scannable, State, StateSize, is_transient
from timely.state.keyed import KeyedState
from timely.state.parts import Parts
from timely.state.runs import RunState
from timely.state.timed import TimedBatches, TimedValues
from timely.state.totals import TotalsState

__all__ = [
    "KeyedState",
    "Parts",
    "Run",
    "RunState",
    "Scan",
    "Scannable",
    "State",
    "StateSize",
    "TimedBatches",
    "TimedValues",
    "TotalsState",
    "is_transient",
]
