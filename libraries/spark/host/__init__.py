"""Spark for a worker: started on demand, supervised, restarted after failures.

Enters: runs of regions and streaming queries, with the options of their Spark. Leaves: their results, or an error once
another attempt is of no use.
"""
