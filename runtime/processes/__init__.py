"""The processes of a job: the mains of workers and of the monitor, and what they say to each other and to the supervisor.

Enters: sockets of whoever started the process. Leaves: an exit code, and messages on these sockets.
"""
