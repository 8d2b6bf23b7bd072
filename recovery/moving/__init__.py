"""Move of a stopped job to another number of workers.

Enters: the journals of the former workers, one bound an operator. Leaves: the journals with which the new ones begin. Pure.
"""
