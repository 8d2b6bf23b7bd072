"""Rollback frontiers of all processors (*Falkirk Wheel*, section 3.6).

- `solve`: from scratch over bounds, for a round of rollback.
- `incremental`: the low-watermarks, kept up to date while processors report what they have persisted.

Enters: what each processor can be restored to, and Ξ of each. Leaves: one frontier a processor. Pure.
"""
