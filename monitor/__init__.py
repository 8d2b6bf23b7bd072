"""Monitor of a job: rollback frontiers, rollback decisions, and the page.

- `coordination`: the coordinator, a state machine that keeps the low-watermarks up to date, announces what may be collected,
  chooses checkpoints and leads each rollback. Pure.
- `explain`: why a frontier is where it is, and what a failure would cost. Pure.
- `web`: the page that shows it; `runtime.page` serves it.

Enters: messages of `recovery.protocol` from workers. Leaves: such messages to them, records to journal, answers for the page.
"""
