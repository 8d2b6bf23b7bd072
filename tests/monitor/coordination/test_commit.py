"""Group commit: what comes while a write is under way goes into the next one."""

from __future__ import annotations

import math

from monitor.coordination.commit import GroupCommit
from monitor.coordination.effects import Persist
from monitor.coordination.records import KeptEvent, KeptFinished, KeptWatermarks


def test_what_comes_during_a_write_goes_into_the_next_together() -> None:
    commit = GroupCommit()
    assert commit.take(0.0) is None
    commit.add(KeptEvent("failure", 1.0), by=math.inf)
    assert commit.take(0.0) is None
    commit.add(KeptWatermarks((((1,),),)))
    assert commit.take(0.0) == Persist(1, (KeptEvent("failure", 1.0), KeptWatermarks((((1,),),))))
    commit.add(KeptWatermarks((((2,),),)))
    commit.add(KeptWatermarks((((3,),),)))
    commit.add(KeptFinished())
    assert commit.take(0.0) is None
    assert commit.stored(7) == ()
    assert commit.unwritten[2:] == (KeptWatermarks((((3,),),)), KeptFinished())
    assert commit.stored(1) == (KeptEvent("failure", 1.0), KeptWatermarks((((1,),),)))
    assert commit.take(0.0) == Persist(2, (KeptWatermarks((((3,),),)), KeptFinished()))
    assert commit.stored(2) == (KeptWatermarks((((3,),),)), KeptFinished())
    assert commit.stored(2) == commit.unwritten == ()


def test_what_can_wait_is_written_in_time_and_once() -> None:
    commit = GroupCommit()
    for number in range(3):
        commit.add(KeptWatermarks((((number,),),)), by=1.0 + number)
    assert commit.take(0.9) is None
    assert commit.take(1.0) == Persist(1, (KeptWatermarks((((2,),),)),))
    commit.stored(1)
    assert commit.take(9.0) is None
