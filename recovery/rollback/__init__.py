"""Rollback on one worker: state restored, messages queued and resent, replay.

Enters: a `Decision`. Leaves: `Orders` for the engine. Pure.
"""
