"""Recovery in a worker process: driver of its agent, its store, and observations.

Enters: turns of a session, messages of the monitor. Leaves: messages to the monitor, writes to the store.
"""
