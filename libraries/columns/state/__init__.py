"""State of operators on columns, in versions by time; see `timely.state`.

Enters: rows and totals of a time. Leaves: their sum as of a time, and runs, of which checkpoints are made.
"""

from libraries.columns.state.expiring import CountedRows, ExpiringTotals
from libraries.columns.state.rows import OrderedRowsState, RowsState
from libraries.columns.state.totals import TotalsState
from libraries.columns.state.values_of_keys import ValuesOfKeys, ValuesOfSessions

__all__ = [
    "CountedRows",
    "ExpiringTotals",
    "OrderedRowsState",
    "RowsState",
    "TotalsState",
    "ValuesOfKeys",
    "ValuesOfSessions",
]
