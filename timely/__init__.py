"""Timely dataflow: logical times, progress tracking, and workers.

Pure, but for `io`.

Rooms, lowest first; each imports from those below:

- `time`: times, frontiers, path summaries.
- `data`: batches, their encoding, routing, sums, the kernels that routing needs.
- `io`: the interface of sources and sinks, and the simplest ones, called by the runtime.
- `state`: all that operators keep.
- `operators`: the built-in ones, and what one of a user's own is given.
- `progress`: which times may still arrive where.
- `dataflow`: the language of programs, the graph, the plan.
- `worker`: the state machine, its calls of a `Recorder`, its half of a rollback.

Enters: programs, batches, frames of other workers. Leaves: frames, effects for a driver. It knows nothing of columns' verbs,
recovery, Spark or the web; `falkirk` is the front door for users.
"""
