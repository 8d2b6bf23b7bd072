"""The driver of an agent: the order in which it says and does things."""

from __future__ import annotations

from recovery.protocol import Join, decode_to_monitor
from tests.recovery.jobs import quiet


def test_a_process_joins_once_also_if_the_monitor_is_new_in_its_first_turn() -> None:
    """A second `Join` would be taken for that of another process, and this one be given up."""
    world = quiet("tight", 1)
    while (process := world._processes[0]) is None or process.session is None:
        world.step()
    assert not process.to_monitor
    process.anew = True
    process.session.step()
    assert [isinstance(decode_to_monitor(data), Join) for data in process.to_monitor] == [True]
    process.anew = True
    process.session.step()
    assert sum(isinstance(decode_to_monitor(data), Join) for data in process.to_monitor) == 2
