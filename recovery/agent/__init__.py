"""Worker's half of recovery: state machine between engine, journal and monitor.

Enters: words of the monitor, acknowledgements of the store, ends of turns. Leaves: reports, frames, segments, orders. Pure.
"""
