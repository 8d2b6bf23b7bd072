"""Processes of a job: entry points of workers and monitor, and their connections.

Enters: sockets of whoever started the process. Leaves: an exit code, and messages on these sockets.
"""
