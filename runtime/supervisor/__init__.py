"""Supervisors: they start the processes of a job, watch them, and start anew what dies.

Enters: a program, a store, the number of workers. Leaves: the job's result.
"""
