"""Everything that has threads, sockets, processes or clocks: it drives the pure state machines of the packages below.

Enters: a program and options. Leaves: a job's result. `session` is the loop of a worker; `supervisor` starts the processes.
"""
