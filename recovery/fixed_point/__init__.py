"""The rollback frontiers of all processors: the fixed point of *Falkirk Wheel*, section 3.6, three times.

- `literal`: Figure 6 transcribed, for any time domain and any frontiers. Slow and obviously right: the oracle of the tests.
- `solve`: from scratch over bounds, for a round of rollback.
- `incremental`: the low-watermarks, kept up to date while processors report what they have persisted.

Enters: what each processor can be restored to, and Ξ of each. Leaves: one frontier a processor. Pure.
"""
