"""Checkpoints of one worker: cut, restored and collected.

Enters: cuts to make, low-watermarks. Leaves: sections for the journal, and Ξ. Pure.
"""
