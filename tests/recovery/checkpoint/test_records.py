"""The sections of a worker's journal: those that speak of what is not in the program are refused."""

from __future__ import annotations

import msgspec
import pytest

from recovery.checkpoint.records import (
    Applied,
    Checkpoint,
    HistoryRecord,
    Logged,
    Opening,
    Piece,
    Published,
    Record,
    check_fit,
    key_of,
    record_of,
    save_batch,
    section,
)
from recovery.layout import Layout
from recovery.metadata import Xi
from tests.recovery.layouts import LOOP, layout
from timely.data.codec import decode_batch
from timely.errors import ProtocolError

PLAN = layout(*LOOP)
READ, STATE, OUT = (
    next(p for p, info in enumerate(PLAN.processors) if info.name == name) for name in ("read", "state", "out")
)
LAST = len(PLAN.processors) - 1
HISTORY = msgspec.structs.replace(
    PLAN,
    processors=tuple(msgspec.structs.replace(info, history=p == STATE) for p, info in enumerate(PLAN.processors)),
)
BOUNDS = tuple(info.nothing for info in PLAN.processors)
SENDERS = {edge.edge: edge.source for edge in PLAN.edges}
INTO_STATE = next(edge.edge for edge in PLAN.edges if edge.target == STATE)
XI = Xi(STATE, (2, 0), ())
SAVED = Checkpoint(XI, 1, (1, 0), 1, (), ())
EVENT = HistoryRecord(STATE, 0, 0, (1, 3), b"", (2, 0), 1)
LOG = Logged(INTO_STATE, 1, 0, (1, 3), (1, 3), b"", (2, 0), 1)
PIECE = Piece(STATE, (2, 0), (((1, 3), 0, 4), ((1, 4), 0, 1)), b"")
change = msgspec.structs.replace

FITS: dict[str, Record] = {
    "opening": Opening(PLAN),
    "applied": Applied(1, BOUNDS),
    "applied, stays as it is": Applied(1, (None,) * len(BOUNDS)),
    "checkpoint": SAVED,
    "checkpoint of the first": change(SAVED, xi=Xi(0, (2,), ()), since=(0,)),
    "checkpoint of the last": change(SAVED, xi=Xi(LAST, (2,), ()), since=(0,)),
    "checkpoint that says of which state": change(SAVED, state=7),
    "piece": PIECE,
    "piece of parts with names": change(PIECE, runs=(((1, 3), "counts", 4), ((1, 4), 1, 1))),
    "log": LOG,
    "log for the first worker": change(LOG, receiver=0),
    "history": EVENT,
    "published": Published(((OUT, (3,)), (READ, (1,)))),
    "published, nothing": Published(()),
}
MISFITS: dict[str, Record] = {
    "too few bounds": Applied(1, BOUNDS[:-1]),
    "too many bounds": Applied(1, (*BOUNDS, (0,))),
    "a bound of another depth": Applied(1, tuple((1,) if p == STATE else bound for p, bound in enumerate(BOUNDS))),
    "a checkpoint of nobody": change(SAVED, xi=change(XI, processor=LAST + 1)),
    "a checkpoint of nobody, below": change(SAVED, xi=change(XI, processor=-1)),
    "a checkpoint of another depth": change(SAVED, xi=change(XI, bound=(2,))),
    "a checkpoint since another depth": change(SAVED, since=(1,)),
    "a piece of nobody": change(PIECE, processor=LAST + 1),
    "a piece of another depth": change(PIECE, bound=(2,)),
    "a piece with a run of another depth": change(PIECE, runs=(((1, 3), 0, 4), ((1,), 0, 1))),
    "a log of an edge that is not there": change(LOG, edge=99),
    "a log of an event of another depth": change(LOG, event=(1,)),
    "a log for a worker that is not there": change(LOG, receiver=2),
    "a log for a worker below all": change(LOG, receiver=-1),
    "a history of an operator without one": change(EVENT, processor=OUT, time=(1,)),
    "a history of nobody": change(EVENT, processor=LAST + 1),
    "a history with a time of another depth": change(EVENT, time=(1,)),
    "published by nobody": Published(((LAST + 1, (3,)),)),
    "published up to a bound of another depth": Published(((OUT, (3,)), (STATE, (3,)))),
}


@pytest.mark.parametrize("record", FITS.values(), ids=FITS)
def test_what_speaks_of_the_program_is_read(record: Record) -> None:
    check_fit(record, HISTORY, SENDERS)
    assert record_of(section(record).head) == record


@pytest.mark.parametrize("record", MISFITS.values(), ids=MISFITS)
def test_what_speaks_of_something_else_is_refused_and_named(record: Record) -> None:
    with pytest.raises(ProtocolError, match=f"does not fit the program: {type(record).__name__} of what is not there"):
        check_fit(record, HISTORY, SENDERS)


def test_a_checkpoint_is_whole_if_it_begins_where_it_ends() -> None:
    assert change(SAVED, since=XI.bound).whole
    assert not SAVED.whole


def test_stores_of_earlier_versions_do_not_say_of_which_state_a_checkpoint_is() -> None:
    *before, last = msgspec.msgpack.decode(section(change(SAVED, state=7)).head)
    assert last == 7
    assert record_of(msgspec.msgpack.encode(before)) == SAVED
    earlier = msgspec.to_builtins(PLAN)
    del earlier["functions"]
    for info in earlier["processors"]:
        del info["state"]
    assert msgspec.convert(earlier, Layout) == PLAN


def test_records_of_one_key_live_and_die_together() -> None:
    keys = {name: key_of(record) for name, record in FITS.items()}
    assert keys["checkpoint"] == keys["piece"]
    assert keys["published"] == keys["published, nothing"]
    assert keys["log"] != keys["log for the first worker"]
    assert len({keys[name] for name in ("opening", "applied", "checkpoint", "log", "history", "published")}) == 6


@pytest.mark.parametrize("batch", [[1, "a", (2.5, None)], [], ["x" * 9] * 1000])
def test_a_batch_is_saved_as_a_header_and_bytes_of_their_own(batch: list[object]) -> None:
    header, payload = save_batch(batch)
    assert type(payload) is bytes
    assert decode_batch(header, payload) == batch
