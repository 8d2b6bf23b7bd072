"""One worker's share of a round: what is restored, kept in queues, sent again, and done again.

Enters: a `Decision`. Leaves: `Orders` for the engine. Pure.
"""
