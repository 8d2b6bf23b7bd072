"""Group commit: what comes while a write is under way goes into the next one."""

from __future__ import annotations

from monitor.coordination.commit import GroupCommit
from monitor.coordination.effects import Persist
from monitor.coordination.records import KeptEvent, KeptFinished, KeptWatermarks


def test_what_comes_during_a_write_goes_into_the_next_together() -> None:
    commit = GroupCommit()
    assert commit.take() is None
    commit.add_some_time(KeptEvent("failure", 1.0))
    assert commit.take() is None
    commit.add(KeptWatermarks((((1,),),)))
    assert commit.take() == Persist(1, (KeptEvent("failure", 1.0), KeptWatermarks((((1,),),))))
    commit.add(KeptWatermarks((((2,),),)))
    commit.add(KeptWatermarks((((3,),),)))
    commit.add(KeptFinished())
    assert commit.take() is None
    assert commit.stored(7) == ()
    assert commit.unwritten[2:] == (KeptWatermarks((((3,),),)), KeptFinished())
    assert commit.stored(1) == (KeptEvent("failure", 1.0), KeptWatermarks((((1,),),)))
    assert commit.take() == Persist(2, (KeptWatermarks((((3,),),)), KeptFinished()))
    assert commit.stored(2) == (KeptWatermarks((((3,),),)), KeptFinished())
    assert commit.stored(2) == commit.unwritten == ()
