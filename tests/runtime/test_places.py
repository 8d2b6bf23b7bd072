"""Ends of links and of the monitor's connections: a copy is another end than the process at work of its worker."""

from __future__ import annotations

import selectors
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recovery.agent.agent import Agent
from recovery.agent.effects import SendFrame
from recovery.agent.events import EpochsEnded, Received
from recovery.epoch_ends import EpochEnds
from recovery.layout import lay_out
from recovery.place import Place, places
from recovery.protocol import Cut, Drain, Drained, Join, Released, ToMonitor
from recovery.store.reading import take_over
from runtime.links.frames import LENGTH, decode_frame, encode_frame
from runtime.links.unix import SocketLink
from runtime.links.zeromq import ZmqLink
from runtime.links.zeromq_sockets import Timing
from runtime.processes.monitor_connections import WorkerConnections
from runtime.processes.monitor_link import SocketMonitorLink
from tests.recovery.agent.driven import DrivenAgents, counts, of_kind, reported
from tests.recovery.store.owners import STORE, memory_disk
from timely.data.messages import Frame
from timely.dataflow.plan import compile_plan

COPY = Place(0, 1)


@pytest.mark.parametrize("frame", [Frame(3, 7, ends=2, copy=1), Frame(3, 7, recovery=b"ends", copy=5), Frame(0, 1)])
def test_a_frame_says_which_process_has_sent_it(frame: Frame) -> None:
    data = b"".join(map(bytes, encode_frame(frame)))
    assert decode_frame(memoryview(data)[LENGTH.size :]) == frame


def test_sockets_lead_to_places() -> None:
    (to_work, to_copy), (at_work, at_copy) = zip(*(socket.socketpair() for _ in range(2)))
    link = SocketLink({Place(0): to_work, COPY: to_copy}, survives=True)
    ends = {place: SocketLink({Place(1): end}) for place, end in ((Place(0), at_work), (COPY, at_copy))}
    link.send(COPY, Frame(1, 3))
    assert ends[COPY].poll(10.0) == [Frame(1, 3)]
    assert ends[Place(0)].poll(0) == []
    ends[COPY].send(Place(1), Frame(0, 3, ends=4, copy=1))
    assert link.poll(10.0) == [Frame(0, 3, ends=4, copy=1)]
    here, there = socket.socketpair()
    link.replace(COPY, here)
    again = SocketLink({Place(1): there})
    link.send(COPY, Frame(1, 5))
    link.send(Place(0), Frame(1, 6))
    assert again.poll(10.0) == [Frame(1, 5)]
    assert ends[Place(0)].poll(10.0) == [Frame(1, 6)], "the other end of its worker stays"
    for each in (link, again, *ends.values()):
        each.abandon()


def test_links_between_hosts_lead_to_places(tmp_path: Path) -> None:
    addresses = {place: f"ipc://{tmp_path}/{place.worker}-{place.copy}" for place in (Place(0), Place(1), COPY)}
    links = {place: ZmqLink(place, addresses, timing=Timing(meet=60.0)) for place in addresses}
    met: dict[Place, list[Place]] = {place: [] for place in links}

    def meet(place: Place) -> None:
        links[place].meet(b"hello", lambda other, greeting: met[place].append(other))

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(meet, place) for place in links]:
            done.result()
    assert {place: set(others) | {place} for place, others in met.items()} == {place: set(links) for place in links}
    links[Place(1)].send(COPY, Frame(1, 3))
    links[COPY].send(Place(0), Frame(0, 3, ends=9, copy=1))
    assert links[COPY].poll(60.0) == [Frame(1, 3)]
    assert links[Place(0)].poll(60.0) == [Frame(0, 3, ends=9, copy=1)]
    assert links[Place(1)].poll(0) == []
    for link in links.values():
        link.fail(RuntimeError("the test is over"))


def test_a_monitor_has_a_connection_for_each_place(tmp_path: Path) -> None:
    layout = lay_out(compile_plan(counts().graph, 1))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    selector = selectors.DefaultSelector()
    monitor = WorkerConnections(selector, listener, processes=2)

    def hear() -> list[tuple[ToMonitor, int]]:
        found: list[tuple[ToMonitor, int]] = []
        while not found:
            for key, events in selector.select(60):
                found += key.data(events)
        return found

    def join(place: Place, incarnation: int) -> SocketMonitorLink:
        link = SocketMonitorLink(str(tmp_path / "s"))
        link.send(Join(place, incarnation, 0, False, layout, ()))
        assert hear() == [(Join(place, incarnation, 0, False, layout, ()), incarnation)]
        return link

    copy, at_work = join(COPY, 7), join(Place(0), 3)
    monitor.send(Place(0), Cut(1, 0, (5,)))
    monitor.send(COPY, Cut(1, 0, (6,)))
    assert (at_work.poll(), copy.poll()) == (([Cut(1, 0, (5,))], False), ([Cut(1, 0, (6,))], False))
    copy.send(Released(COPY))
    assert hear() == [(Released(COPY), 7)]
    again = join(COPY, 8)
    monitor.send_all(Cut(1, 0, (7,)))
    assert [each.poll()[0] for each in (at_work, copy, again)] == [[Cut(1, 0, (7,))], [], [Cut(1, 0, (7,))]]
    for each in (copy, at_work, again):
        each.close()
    monitor.close()
    selector.close()


def test_an_agent_waits_for_the_marker_of_each_process_and_tells_all_of_them() -> None:
    agents = DrivenAgents(counts, 2)
    plan = compile_plan(counts().graph, 2)
    journal, found, _ = take_over(memory_disk(), "worker-000", STORE, 1)
    agent = Agent(plan, lay_out(plan), Place(0), 1, journal, found.read(), copies=2)
    assert agent.others == (Place(1), Place(0, 1), Place(1, 1))
    agents.of[0] = agent
    agents.begin()
    told = agents.tell(0, EpochsEnded((EpochEnds(0, 0, 0, 1, (("all", 5),)),)))
    assert [each.place for each in of_kind(told, SendFrame)] == [Place(1), Place(0, 1), Place(1, 1)]
    generation = agent.worker.generation
    alive = (Place(0), Place(1), COPY)
    effects = agents.hear(0, Drain(5, alive))
    assert [(each.place, each.frame.ends) for each in of_kind(effects, SendFrame)] == [(Place(1), 5), (COPY, 5)]
    assert not reported(agents.tell(0, Received(Frame(1, generation, ends=5))), Drained)
    assert not reported(agents.tell(0, Received(Frame(1, generation, ends=5, copy=1))), Drained), "not of this round"
    (drained,) = reported(agents.tell(0, Received(Frame(0, generation, ends=5, copy=1))), Drained)
    assert drained.place == Place(0)


def test_a_copy_takes_over_no_journal() -> None:
    assert [place.journal() for place in places(1, copies=3)] == ["worker-000", None, None]
