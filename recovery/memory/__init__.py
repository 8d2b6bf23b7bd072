"""Memory of a worker's events and messages, for rollback.

`recorder` implements the engine's `Recorder` over `channels`, the messages between processors: `records` of logs, and
`kept_messages` within a budget. Enters: events and sends of the engine. Leaves: bounds of what was delivered, sent, asked for
and kept; entries to save or to send again.
"""
