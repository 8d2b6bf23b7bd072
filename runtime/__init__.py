"""Drivers of the pure state machines: threads, sockets, processes and clocks.

Enters: a program and options. Leaves: a job's result. `session` is the loop of a worker; `supervisor` starts the
processes.
"""
