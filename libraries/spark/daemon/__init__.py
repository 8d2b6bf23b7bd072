"""Daemon of a job: owns a Java, a Sail or sessions on a server, forks clients.

Enters: orders on its standard input, connections of workers. Leaves: client processes, each with the address of its Spark
and what that has printed; a Java in the place of one that has died.
"""
