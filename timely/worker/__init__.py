"""Worker: a deterministic state machine for one worker's share of a dataflow.

Enters: batches, frames of other workers, orders of a rollback. Leaves: frames, effects, calls of a `Recorder`. Pure.
"""
