"""Transports between workers: one interface, for one host and for several.

Enters: frames. Leaves: the same frames, in order, on another worker.
"""
