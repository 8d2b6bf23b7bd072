"""The fate of a message in a rollback: it stays in the queue of its receiver, it is sent again, or it is void.

This is Q'(e) of *Falkirk Wheel*, end of section 3.6, with messages in flight taken into account. All of it follows from the
edge, from f(src) and f(dst) (None: ⊤), from whether the sender `lives`, with its memory, and from the message's two
times: its own, and that of the event that sent it.

A queue holds the messages of an edge in the order of sending. So what is logged comes from one place only, queue or log: if
earlier messages have to be sent again, later ones that wait in the queue are dropped and sent again as well, behind them.
"""

from __future__ import annotations

from recovery.layout import EdgeInfo
from recovery.metadata import Bound
from timely.time import Time


def owed(source: Bound | None, target: Bound | None, event: Time, time: Time) -> bool:
    """True if a message was sent for good, and its receiver must have it, unless it had it and stays as it is."""
    return (source is None or event < source) and (target is None or time >= target)


def from_log(edge: EdgeInfo, target: Bound | None, lives: bool, event: Time, time: Time) -> bool:
    """True if the receiver gets a message from the log, if it gets it: it goes back itself, or what was under way is lost."""
    return edge.logs(event, time) and (target is not None or not lives)


def stays(edge: EdgeInfo, source: Bound | None, target: Bound | None, lives: bool, event: Time, time: Time) -> bool:
    """True if a message that waits in the queue of a living receiver stays there."""
    return lives and owed(source, target, event, time) and not from_log(edge, target, lives, event, time)


def goes_again(
    edge: EdgeInfo, source: Bound | None, target: Bound | None, lives: bool, event: Time, time: Time
) -> bool:
    """True if a message in the log of its sender is sent again. A receiver that stays as it is refuses what it had."""
    if not edge.logged and source is not None and time < source:
        return False  # nothing else at such times was logged: a receiver that needed any of it could not be where it is
    return from_log(edge, target, lives, event, time) and owed(source, target, event, time)
