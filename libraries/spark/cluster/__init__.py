"""Whole jobs on a Spark cluster: the workers are tasks of a barrier stage.

Enters: a program, and the address of a cluster. Leaves: the job's outcome; a stage that was lost is submitted again.
"""
