"""Checkpoints of one worker: made, found again, and let go.

Enters: cuts to make, low-watermarks. Leaves: sections for the journal, and Ξ. Pure.
"""
