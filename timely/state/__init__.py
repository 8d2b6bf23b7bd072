"""State of operators, in versions by time.

`interface` has the protocol required by recovery. Enters: what an operator adds at a time. Leaves: its sum as of a
time, and runs, of which checkpoints are made. Pure.
"""

from timely.state.counted_rows import CountedRows
from timely.state.expiring import ExpiringTotals
from timely.state.interface import Run, Scan, Scannable, State, StateSize, is_transient
from timely.state.keyed import KeyedState
from timely.state.parts import Parts
from timely.state.rows import OrderedRowsState, RowsState
from timely.state.timed import TimedBatches, TimedValues
from timely.state.totals import TotalsState
from timely.state.values_of_keys import ValuesOfKeys, ValuesOfSessions

__all__ = [
    "CountedRows",
    "ExpiringTotals",
    "KeyedState",
    "OrderedRowsState",
    "Parts",
    "RowsState",
    "Run",
    "Scan",
    "Scannable",
    "State",
    "StateSize",
    "TimedBatches",
    "TimedValues",
    "TotalsState",
    "ValuesOfKeys",
    "ValuesOfSessions",
    "is_transient",
]
