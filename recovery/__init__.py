"""Rollback recovery for timely dataflows, after "Falkirk Wheel: Rollback Recovery for Dataflow Systems".

- `policies`: what a program chooses, for a region or for an operator.
- `layout`, `metadata`: what recovery needs to know of a plan; rollback frontiers as bounds, and Ξ.
- `recorder`, `checkpoints`, `records`: what a worker remembers and persists. `rollback`, `replay`: how it goes back.
- `agent`, `session`: the worker's half of recovery, and its driver. `protocol`: what it and the monitor tell each other.
- `fixed_point`: the largest consistent rollback frontiers, and the low-watermarks.
- `store`: named blobs that are durable, and journals of them.
- `child` and its kin: a worker with recovery as a process.

It builds on `timely`, which runs without it. docs/recovery.md says how all of this works together.
"""

from recovery.policies import Batch, Ephemeral, Lazy, LogHistory

__all__ = ["Batch", "Ephemeral", "Lazy", "LogHistory"]
