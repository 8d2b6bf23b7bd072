"""Rollback recovery for timely dataflows, after the *Falkirk Wheel* paper.

Isard and Abadi, *Falkirk Wheel: Rollback Recovery for Dataflow Systems*.

Pure, but for `store.local`.
Rooms, lowest first; each imports from those below:

- `policy`: what a program chooses, for a region or for an operator, as traits. `metadata`: rollback frontiers as bounds, and Ξ.
- `guarantees`: the promise for each output of a program.
- `store`: named blobs that are durable, and journals of them.
- `layout`, `loops`: what recovery needs to know of a plan. `protocol`: messages between workers and the monitor.
- `memory`: events and messages of a worker, for rollback.
- `checkpoint`: what it persists. `fixed_point`: the largest consistent rollback frontiers, and the low-watermarks.
- `rollback`: how it goes back.
- `agent`: the worker's half of recovery, a state machine over all of these.
- `moving`: a stopped job's move to another number of workers.

Enters: what the engine tells its `Recorder`, messages of the monitor, results of writes. Leaves: messages, segments to write,
orders for the engine. It builds on `timely`, which runs without it. docs/theory.md says how all of this works together.
"""
