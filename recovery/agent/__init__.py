"""The worker's half of recovery: a state machine between the engine, the journal and the monitor.

Enters: words of the monitor, acknowledgements of the store, ends of turns. Leaves: reports, frames, segments, orders. Pure.
"""
