"""The parts of the monitor's process: its journal, and connections that may break."""

from __future__ import annotations

import selectors
import socket
from pathlib import Path

from libraries.columns.verbs.dataflow import Dataflow
from monitor.coordination.records import MOST_EVENTS, KeptDecision, KeptEvent, KeptFinished, KeptWatermarks, Record
from monitor.coordination.supervision import Lost
from recovery.layout import lay_out
from recovery.place import Place
from recovery.protocol import Cut, Join, Released
from recovery.store.identity import make_store_id
from recovery.store.local import LocalStore
from runtime.control import TO_CHILD, Begin, Control, Peer, ToChild, tell
from runtime.links.unix import SocketLink
from runtime.processes.monitor_connections import WorkerConnections
from runtime.processes.monitor_journal import MonitorJournal
from runtime.processes.monitor_link import SocketMonitorLink
from timely.data.messages import Frame
from timely.dataflow.plan import compile_plan
from timely.io import Iterable


def write(journal: MonitorJournal, ticket: int, *records: Record) -> None:
    journal.write(ticket, records)
    selector = selectors.DefaultSelector()
    for file in journal.files():
        selector.register(file, selectors.EVENT_READ)
    done: list[int] = []
    while not done:
        assert selector.select(10)
        done = journal.written()
    assert done == [ticket]


def test_the_journal_gives_back_the_newest_of_each_kind_and_stays_small(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    identity = make_store_id(store, bytes(16))
    journal = MonitorJournal(store, identity, 1)
    assert journal.saved.decision is None
    for generation in range(1, 60):
        events = [KeptEvent("failure", generation * 100.0 + i, {"worker": i}) for i in range(40)]
        write(
            journal,
            generation,
            KeptDecision(generation, generation - 1, (((generation,),),), (0,)),
            KeptWatermarks((((generation,),),)),
            *events,
        )
    journal.close()
    names = store.names("monitor/")
    assert len(names) < 40
    again = MonitorJournal(store, identity, 2)
    saved = again.saved
    assert saved.decision == KeptDecision(59, 58, (((59,),),), (0,))
    assert saved.watermarks == (((59,),),)
    assert not saved.finished
    assert len(saved.events) == MOST_EVENTS
    assert [event.at for event in saved.events] == sorted(event.at for event in saved.events)
    assert saved.events[-1].at == 5939.0
    write(again, 1, KeptFinished())
    again.close()
    last = MonitorJournal(store, identity, 3)
    assert last.saved.finished
    assert last.saved.events == saved.events
    last.close()


def test_sockets_travel_with_the_messages_that_speak_of_them() -> None:
    ours, theirs = socket.socketpair()
    control: Control[ToChild] = Control(theirs, TO_CHILD)
    ends = [socket.socketpair() for _ in range(3)]
    tell(ours, Begin(Place(3), 7, (Place(0), Place(1))), [ends[0][0], ends[1][0]])
    tell(ours, Lost(Place(1), 2, "x" * 100_000))
    tell(ours, Peer(Place(2)), [ends[2][0]])
    said = control.read(wait=True)
    while len(said) < 3:
        said += control.read(wait=True)
    assert said == [Begin(Place(3), 7, (Place(0), Place(1))), Lost(Place(1), 2, "x" * 100_000), Peer(Place(2))]
    received = [*control.files(2), *control.files(1)]
    for number, end in enumerate(received):
        assert not end.get_inheritable()
        end.sendall(bytes([number]))
    assert [pair[1].recv(10) for pair in ends] == [b"\0", b"\1", b"\2"]
    assert control.read() == []
    assert not control.ended
    ours.close()
    assert control.read(wait=True) == []
    assert control.ended
    control.close()
    for end in [*received, *(each for pair in ends for each in pair)]:
        end.close()


def test_a_worker_outlives_the_connection_to_its_monitor(tmp_path: Path) -> None:
    flow = Dataflow()
    flow.source("in", Iterable([1])).capture()
    layout = lay_out(compile_plan(flow.graph, 1))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    heard_before = []
    link = SocketMonitorLink(str(tmp_path / "s"), lambda: heard_before.append(True))
    link.send(Join(Place(0), 1, 0, False, layout, ()))

    def serve() -> tuple[selectors.BaseSelector, WorkerConnections]:
        selector = selectors.DefaultSelector()
        return selector, WorkerConnections(selector, listener)

    def hear(selector: selectors.BaseSelector) -> list[object]:
        found: list[object] = []
        while not found:
            ready = selector.select(5)
            assert ready, "nothing came"
            for key, events in ready:
                found += key.data(events)
        return found

    selector, first = serve()
    assert hear(selector) == [(Join(Place(0), 1, 0, False, layout, ()), 1)]
    first.send(Place(0), Cut(1, 0, (5,)))
    first.send(Place(1), Cut(1, 0, (6,)))  # who is not there hears nothing
    assert link.poll() == ([Cut(1, 0, (5,))], False)
    assert heard_before
    link.send(Released(Place(0)))
    assert hear(selector) == [(Released(Place(0)), 1)]
    for key in list(selector.get_map().values()):
        if key.fileobj is not listener:
            key.fileobj.close()  # type: ignore[union-attr]
    selector.close()
    assert link.poll() == ([], False)
    link.send(Released(Place(0)))  # nobody hears that
    assert link.poll() == ([], True)
    link.send(Join(Place(0), 1, 4, True, layout, ()))
    selector, _ = serve()
    assert hear(selector) == [(Join(Place(0), 1, 4, True, layout, ()), 1)]
    link.close()
    for key in list(selector.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    selector.close()


def test_a_link_drops_what_is_for_the_dead_and_hears_only_their_replacement() -> None:
    mine, dead = socket.socketpair()
    link = SocketLink({Place(1): mine}, survives=True)
    peer = SocketLink({Place(0): dead})
    peer.send(Place(0), Frame(1, 3))
    link.send(Place(1), Frame(0, 3, progress=[(1, (n,), 1) for n in range(300_000)]))
    assert link.unsent > 0
    fresh, replacement = socket.socketpair()
    link.replace(Place(1), fresh)  # what the dead one said last is not heard
    assert link.unsent == 0
    other = SocketLink({Place(0): replacement})
    other.send(Place(0), Frame(1, 4))
    assert [frame.generation for frame in link.poll(5)] == [4]
    other.abandon()
    assert link.poll(5) == []
    link.send(Place(1), Frame(0, 4))
    assert link.poll(0) == []
    assert link.unsent == 0
    link.close()
    peer.abandon()


def test_a_file_whose_number_a_new_connection_takes_over_does_not_silence_it() -> None:
    one, other = socket.socketpair()
    link = SocketLink({}, survives=True)
    link.poll(0, [one.fileno()])
    number = one.fileno()
    one.close()
    other.close()
    mine, theirs = socket.socketpair()
    assert number in (mine.fileno(), theirs.fileno())
    mine, theirs = (mine, theirs) if mine.fileno() == number else (theirs, mine)
    link.replace(Place(1), mine)
    peer = SocketLink({Place(0): theirs})
    assert link.poll(0) == []
    peer.send(Place(0), Frame(1, 2))
    assert [frame.generation for frame in link.poll(5)] == [2]
    link.close()
    peer.abandon()
