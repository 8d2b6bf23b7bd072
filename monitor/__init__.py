"""The monitor: the process that watches a job's rollback frontiers and decides what a failure costs.

`coordinator` leads: a state machine that keeps the low-watermarks up to date, announces what may be collected, chooses
checkpoints and leads each recovery. Around it, each without I/O:

- `phase`, `seats`, `rounds`: where the job stands, and each of its workers; what a round is called.
- `handshake`, `layouts`: whether a worker and its store belong to the job.
- `available`, `topology`: what every processor can be restored to, and the fixed points over that.
- `watermarks`, `commit`, `records`: what is journaled before it is said, in one write at a time.
- `cuts`: when to checkpoint.
- `effects`: what a driver, or a simulator, is asked to do.

It speaks to workers only through the messages of `recovery.protocol`.
"""
