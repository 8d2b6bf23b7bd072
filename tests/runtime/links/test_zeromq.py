"""The link over ZeroMQ, end to end within one process: order, back pressure, keys, and every way to lose a worker."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.place import Place
from runtime.links.zeromq import ZmqLink
from runtime.links.zeromq_sockets import Keys, Timing
from tests.support.few_descriptors import few_descriptors
from tests.support.processes import free_addresses
from timely.data.messages import Frame, Message
from timely.errors import FalkirkError, WorkerLost

QUICK = Timing(meet=10.0, silence=5.0, last_words=0.3, goodbye=5.0)


def placed(values: Iterable[str]) -> dict[Place, str]:
    """One for each worker."""
    return {Place(worker): value for worker, value in enumerate(values)}


def new_keys(count: int) -> list[Keys]:
    pairs = [zmq.curve_keypair() for _ in range(count)]
    public = placed(pair[0].decode() for pair in pairs)
    return [Keys(pair[1].decode(), public) for pair in pairs]


def meet(*links: ZmqLink) -> None:
    with ThreadPoolExecutor(len(links)) as pool:
        for done in [pool.submit(link.meet, b"hello", lambda place, greeting: None) for link in links]:
            done.result()


def close(*links: ZmqLink) -> None:
    with ThreadPoolExecutor(len(links)) as pool:
        for done in [pool.submit(link.close) for link in links]:
            done.result()


@contextmanager
def pair(timing: Timing = QUICK) -> Iterator[tuple[ZmqLink, ZmqLink]]:
    addresses, keys = placed(free_addresses(2)), new_keys(2)
    links = [ZmqLink(Place(index), addresses, keys[index], timing=timing) for index in range(2)]
    try:
        meet(*links)
        yield links[0], links[1]
    finally:
        for link in links:
            link.fail(FalkirkError("the test is over"))


def frame(number: int, size: int = 0, sender: int = 0) -> Frame:
    message = Message(3, number, (1,), (1, 2), b"header", [os.urandom(size), b"tail"])
    return Frame(sender, 0, [message], [(1, (number,), -1)], False)


def same(a: Frame, b: Frame) -> bool:
    payloads = [b"".join(map(bytes, m.payload)) for f in (a, b) for m in f.messages]
    return payloads[0] == payloads[1] and a.progress == b.progress and a.messages[0].number == b.messages[0].number


def receive(link: ZmqLink, count: int, seconds: float = 10.0) -> list[Frame]:
    frames: list[Frame] = []
    end = time.monotonic() + seconds
    while len(frames) < count and time.monotonic() < end:
        frames += link.poll(0.1)
    return frames


def poll_until_lost(link: ZmqLink, seconds: float) -> tuple[str, float]:
    """The text of WorkerLost, and the seconds until it comes."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        try:
            link.poll(0.2)
        except WorkerLost as error:
            return str(error), time.monotonic() - began
    raise AssertionError(f"no worker was lost within {seconds} s")


def vanish(link: ZmqLink) -> None:
    """Close the connections without a word, as `kill -9` does."""
    link._closed = True
    link._context.destroy(linger=0)


def test_a_link_takes_over_a_socket_that_listens_already() -> None:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    addresses, keys = placed(f"tcp://127.0.0.1:{each.getsockname()[1]}" for each in listeners), new_keys(2)
    links = [
        ZmqLink(Place(index), addresses, keys[index], timing=QUICK, listener=listeners[index]) for index in range(2)
    ]
    meet(*links)
    sent = frame(1, 100_000)
    links[0].send(Place(1), sent)
    assert same(receive(links[1], 1)[0], sent)
    close(*links)
    assert all(each.fileno() == -1 for each in listeners)


@settings(max_examples=4)
@given(sizes=st.lists(st.sampled_from([0, 64, 70_000, 1 << 20, (4 << 20) + 5, 9_000_000]), min_size=1, max_size=4))
def test_frames_of_any_size_arrive_in_order_and_whole_in_both_directions(sizes: list[int]) -> None:
    there = [frame(n, size) for n, size in enumerate(sizes)]
    back = [frame(n, size, sender=1) for n, size in enumerate(reversed(sizes))]
    with pair() as (a, b), ThreadPoolExecutor(2) as pool:
        for one, two in zip(there, back):
            a.send(Place(1), one)
            b.send(Place(0), two)
        at_a, at_b = pool.submit(receive, a, len(back)), pool.submit(receive, b, len(there))
        got_a, got_b = at_a.result(), at_b.result()
        assert len(got_a) == len(got_b) == len(sizes)
        assert all(map(same, got_b, there))
        assert all(map(same, got_a, back))
        assert a.unsent == b.unsent == 0


def test_plain_ipc_works_without_keys_and_tcp_does_not(tmp_path: Path) -> None:
    addresses = placed(f"ipc://{tmp_path}/{index}" for index in range(2))
    links = [ZmqLink(Place(index), addresses, timing=QUICK) for index in range(2)]
    meet(*links)
    sent = frame(7, 1000)
    links[0].send(Place(1), sent)
    assert same(receive(links[1], 1)[0], sent)
    close(*links)
    with pytest.raises(FalkirkError, match="need keys"):
        ZmqLink(Place(0), placed(free_addresses(2)))


def test_sends_to_a_worker_that_does_not_read_wait_here_and_are_counted() -> None:
    count, size = 64, 1 << 20
    with pair() as (a, b):
        began = time.monotonic()
        for n in range(count):
            a.send(Place(1), frame(n, size))
        assert time.monotonic() - began < 5.0, "send must not wait for the receiver"
        assert 40 << 20 < a.unsent < count * size, "a window is under way, the rest waits"
        before = a.unsent
        a.poll(0.2)
        assert a.unsent == before
        got = 0
        while got < count:
            got += len(b.poll(0.05))
            a.poll(0.0)
            time.sleep(0.001)
        a.poll(0.2)
        assert a.unsent == 0


def test_poll_wakes_for_a_file_and_keeps_its_time() -> None:
    with pair() as (a, _):
        ours, theirs = os.pipe()
        began = time.monotonic()
        assert a.poll(0.2, [ours]) == []
        assert 0.15 < time.monotonic() - began < 5.0
        os.write(theirs, b"!")
        began = time.monotonic()
        a.poll(30.0, [ours])
        assert time.monotonic() - began < 5.0
        os.close(ours)
        os.close(theirs)


def test_three_workers_say_goodbye_at_different_times() -> None:
    addresses, keys = placed(free_addresses(3)), new_keys(3)
    links = [ZmqLink(Place(index), addresses, keys[index], timing=QUICK) for index in range(3)]
    meet(*links)
    links[2].send(Place(0), frame(5, 100_000))
    with ThreadPoolExecutor(3) as pool:
        early = [pool.submit(links[index].close) for index in (1, 2)]
        assert len(receive(links[0], 1)) == 1
        assert links[0].poll(0.3) == [], "a goodbye is no failure"
        began = time.monotonic()
        links[0].close()
        for done in early:
            done.result()
    assert time.monotonic() - began < 4.9


def test_a_worker_that_vanishes_is_lost_and_named() -> None:
    with pair() as (a, b):
        vanish(b)
        text, seconds = poll_until_lost(a, 10.0)
        assert a._peers[Place(1)].address in text
        assert " has lost worker 1 at tcp://" in text
        assert seconds < 4.9


def test_who_is_done_hears_of_a_worker_that_died_before_it_was() -> None:
    with pair() as (a, b):
        vanish(b)
        with pytest.raises(WorkerLost, match="worker 1 at"):
            a.close()


def test_what_arrived_before_a_worker_vanished_is_still_delivered() -> None:
    with pair() as (a, b):
        for n in range(10):
            b.send(Place(0), frame(n, 10, sender=1))
        assert a._pull.poll(5000)
        time.sleep(0.2)
        vanish(b)
        assert a._peers[Place(1)].monitor.poll(5000)
        assert [f.messages[0].number for f in receive(a, 10, seconds=0.2)] == list(range(10))
        poll_until_lost(a, 5.0)


def test_a_worker_started_again_is_not_taken_for_the_first() -> None:
    with pair() as (a, b):
        address, keys = a._peers[Place(1)].address, b._keys
        vanish(b)
        again = ZmqLink(Place(1), placed([b._peers[Place(0)].address, address]), keys, timing=Timing(meet=1.5))
        with ThreadPoolExecutor(1) as pool:
            meeting = pool.submit(again.meet, b"hello", lambda place, greeting: None)
            text, _ = poll_until_lost(a, 10.0)
            assert "worker 1" in text
            with pytest.raises(FalkirkError, match="has waited"):
                meeting.result()
        again.fail(FalkirkError("over"))


class Survivors:
    """Workers whose links survive the loss of others; each listens with a socket that its next process takes over."""

    def __init__(self, count: int, timing: Timing = QUICK) -> None:
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        self._addresses = placed(f"tcp://127.0.0.1:{each.getsockname()[1]}" for each in self._listeners)
        self._keys, self._timing = new_keys(count), timing
        self.links = [self._new(index) for index in range(count)]
        meet(*self.links)

    def _new(self, index: int) -> ZmqLink:
        own = self._listeners[index].dup()
        return ZmqLink(
            Place(index), self._addresses, self._keys[index], timing=self._timing, listener=own, survives=True
        )

    def kill(self, index: int) -> None:
        vanish(self.links[index])

    def replace(self, *indices: int) -> None:
        """Start the next processes of killed workers, and wait until they have met all others, which only poll."""
        for index in indices:
            self.links[index] = self._new(index)
        with ThreadPoolExecutor(len(indices)) as pool:
            met = [pool.submit(self.links[i].meet, b"again", lambda place, greeting: None) for i in indices]
            while not all(each.done() for each in met):
                for index, link in enumerate(self.links):
                    if index not in indices:
                        assert link.poll(0.01) == []
        for each in met:
            each.result()

    def close(self) -> None:
        for link in self.links:
            link.fail(FalkirkError("the test is over"))
        for each in self._listeners:
            each.close()


def talk(links: list[ZmqLink], count: int = 3) -> None:
    """Every link sends to every other one, and all of it arrives in order."""
    for link in links:
        for other in links:
            for n in range(count if other is not link else 0):
                link.send(other.place, frame(n, 100_000 * n, sender=link.place.worker))
    got: dict[tuple[int, int], list[int]] = {}
    end = time.monotonic() + 120
    while sum(map(len, got.values())) < count * len(links) * (len(links) - 1) and time.monotonic() < end:
        for link in links:
            for each in link.poll(0.01):
                got.setdefault((Place(each.sender), link.place), []).append(each.messages[0].number)
    pairs = {(a.place, b.place) for a in links for b in links if a is not b}
    assert got == {pair: list(range(count)) for pair in pairs}


@pytest.mark.parametrize("seen", [True, False], ids=["the loss is seen first", "the hello comes first"])
def test_survivors_go_on_with_the_process_that_takes_the_place_of_a_lost_one(seen: bool) -> None:
    workers = Survivors(3)
    try:
        talk(workers.links)
        for _ in range(3):
            workers.links[0].send(
                Place(1), frame(8, 100_000)
            )  # to the process that is lost, which must not come to the next
            workers.kill(1)
            if seen:
                end = time.monotonic() + 120
                while any(workers.links[i]._peers[Place(1)].life for i in (0, 2)) and time.monotonic() < end:
                    assert workers.links[0].poll(0.01) == workers.links[2].poll(0.01) == []
                workers.links[0].send(Place(1), frame(9))  # nobody is there
                assert workers.links[0].unsent == 0
            workers.replace(1)
            talk(workers.links)
    finally:
        workers.close()


def test_two_lost_workers_and_one_that_is_lost_while_another_comes_back_are_replaced() -> None:
    workers = Survivors(4)
    try:
        for lost in ((1, 2), (0, 1, 3)):
            for index in lost:
                workers.kill(index)
            workers.replace(*lost)
            talk(workers.links)
        workers.kill(1)
        first = workers._new(1)
        workers.kill(2)
        with ThreadPoolExecutor(2) as threads:
            meeting = threads.submit(first.meet, b"again", lambda place, greeting: None)
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                workers.links[0].poll(0.01)
            assert not meeting.done(), "worker 2 is not there"
            workers.links[1] = first
            workers.links[2] = workers._new(2)
            other = threads.submit(workers.links[2].meet, b"again", lambda place, greeting: None)
            while not (meeting.done() and other.done()):
                workers.links[0].poll(0.01)
                workers.links[3].poll(0.01)
                if meeting.done() and not other.done():
                    first.poll(0.01)
            meeting.result()
            other.result()
        talk(workers.links)
    finally:
        workers.close()


def test_what_waits_for_a_worker_is_dropped_with_it() -> None:
    workers = Survivors(2)
    try:
        for n in range(40):
            workers.links[0].send(Place(1), frame(n, 1 << 20))
        assert workers.links[0].unsent > 20 << 20
        workers.kill(1)
        workers.replace(1)
        assert workers.links[0].unsent == 0
        talk(workers.links)
    finally:
        workers.close()


def test_a_lost_worker_whose_place_nobody_takes_is_an_error_after_all() -> None:
    workers = Survivors(2, Timing(meet=1.0, silence=5.0, last_words=0.3))
    try:
        workers.kill(1)
        text, seconds = poll_until_lost(workers.links[0], 10.0)
        assert "no other process has taken its place" in text
        assert 0.9 < seconds < 4.9
    finally:
        workers.close()


def test_a_network_that_fails_between_survivors_is_a_lost_worker() -> None:
    real, keys = placed(free_addresses(2)), new_keys(2)
    proxies = [Proxy(int(address.rpartition(":")[2])) for address in real.values()]
    addresses = placed(f"tcp://127.0.0.1:{proxy.port}" for proxy in proxies)
    links = [ZmqLink(Place(i), addresses, keys[i], bind=real[Place(i)], timing=QUICK, survives=True) for i in range(2)]
    meet(*links)
    talk(links)
    proxies[1].cut()
    began, lost = time.monotonic(), list[str]()
    while not lost and time.monotonic() < began + 30:
        for link in links:
            try:
                link.poll(0.05)
            except WorkerLost as error:
                lost.append(str(error))
    assert "could not be reached for a while, and what was under way is lost" in lost[0]
    for link in links:
        link.fail(WorkerLost("over"))
    for proxy in proxies:
        proxy.close()


@pytest.mark.parametrize("change", [+1, -1], ids=["gap", "repetition"])
def test_a_gap_or_a_repetition_is_a_lost_worker(change: int) -> None:
    with pair() as (a, b):
        b.send(Place(0), frame(1, sender=1))
        assert len(receive(a, 1)) == 1
        b._peers[Place(0)].sent += change
        b.send(Place(0), frame(2, sender=1))
        text, _ = poll_until_lost(a, 5.0)
        assert "gap" in text


def test_the_error_of_one_worker_is_what_all_others_report() -> None:
    addresses, keys = placed(free_addresses(3)), new_keys(3)
    links = [ZmqLink(Place(index), addresses, keys[index], timing=QUICK) for index in range(3)]
    meet(*links)
    try:
        raise FalkirkError("column 'price' is missing")
    except FalkirkError:
        links[2].abandon()
    text, _ = poll_until_lost(links[0], 5.0)
    assert text == f"worker 2 at {addresses[Place(2)]} failed: column 'price' is missing"
    links[0].fail(WorkerLost(text))
    assert poll_until_lost(links[1], 5.0)[0] == text
    links[1].fail(WorkerLost(text))


def meeting_of_three() -> list[ZmqLink]:
    addresses, keys = placed(free_addresses(3)), new_keys(3)
    links = [ZmqLink(Place(index), addresses, keys[index], timing=QUICK) for index in range(3)]
    meet(*links)
    return links


def test_who_has_lost_all_others_says_so_and_blames_none_of_them() -> None:
    links = meeting_of_three()
    vanish(links[0])
    vanish(links[1])
    text, _ = poll_until_lost(links[2], 10)
    assert re.fullmatch(r"worker 2 at \S+ has lost all others, workers 0, 1, .*", text), text
    links[2].fail(WorkerLost("over"))


def test_what_all_hear_of_a_lost_connection_says_who_has_lost_whom() -> None:
    links = meeting_of_three()
    vanish(links[0])
    text, _ = poll_until_lost(links[2], 10)
    assert re.match(r"worker 2 at \S+ has lost worker 0 at ", text), text
    links[2].fail(WorkerLost("over"))
    assert re.match(r"worker [12] at \S+ has lost worker 0 at ", poll_until_lost(links[1], 10)[0])
    links[1].fail(WorkerLost("over"))


class Proxy:
    """Passes bytes on between a port and another, until it is told to fall silent: a network that fails."""

    def __init__(self, target: int) -> None:
        self.silent = threading.Event()
        self._target = target
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break the connections that there are."""
        for each in self._connections:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            self._connections += [near, far]
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        while True:
            try:
                data = source.recv(1 << 16)
                if not data:
                    sink.close()
                    return
                if not self.silent.is_set():
                    sink.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        self._listener.close()


def test_a_network_that_falls_silent_is_noticed_in_the_time_stated() -> None:
    real, keys, timing = placed(free_addresses(2)), new_keys(2), Timing(meet=10.0, silence=0.5, last_words=0.3)
    proxies = [Proxy(int(address.rpartition(":")[2])) for address in real.values()]
    addresses = placed(f"tcp://127.0.0.1:{proxy.port}" for proxy in proxies)
    links = [ZmqLink(Place(i), addresses, keys[i], bind=real[Place(i)], timing=timing) for i in range(2)]
    meet(*links)
    time.sleep(1.6 * timing.silence)
    assert links[0].poll(0.0) == [], "idle is not silent: heartbeats answer"
    for proxy in proxies:
        proxy.silent.set()
    for link in links:
        text, seconds = poll_until_lost(link, 10.0)
        assert addresses[Place(1 - link.place.worker)] in text
        assert seconds < 1.2 * timing.silence + timing.last_words + 4.0, "4 s are for a slow machine"
    for link in links:
        link.fail(WorkerLost("over"))
    for proxy in proxies:
        proxy.close()


def meet_fails(link: ZmqLink, check: Callable[[int, bytes], None] = lambda place, greeting: None) -> str:
    with pytest.raises(FalkirkError) as caught:
        link.meet(b"hello", check)
    link.fail(caught.value)
    return str(caught.value)


def test_a_stranger_is_refused_and_both_sides_say_so(capfd: pytest.CaptureFixture[str]) -> None:
    addresses, keys = placed(free_addresses(2)), new_keys(2)
    stranger = new_keys(1)[0]
    home = ZmqLink(Place(0), addresses, keys[0], timing=Timing(meet=0.8))
    away = ZmqLink(
        Place(1),
        addresses,
        Keys(stranger.secret, placed([keys[0].public[Place(0)], stranger.public[Place(0)]])),
        timing=QUICK,
    )
    with ThreadPoolExecutor(2) as pool:
        at_home, at_away = pool.submit(meet_fails, home), pool.submit(meet_fails, away)
        assert "worker 0 at" in at_away.result()
        assert "refuses the key of worker 1" in at_away.result()
        assert "has waited 0.8 s" in at_home.result()
        assert addresses[Place(1)] in at_home.result()
    assert "refused a connection from 127.0.0.1" in capfd.readouterr().err


def test_nothing_is_sent_to_an_impostor_at_a_workers_address() -> None:
    addresses, keys = placed(free_addresses(2)), new_keys(2)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    impostor = context.socket(zmq.PULL)
    public, secret = zmq.curve_keypair()
    impostor.curve_server, impostor.curve_publickey, impostor.curve_secretkey = True, public, secret
    impostor.bind(addresses[Place(1)])
    text = meet_fails(ZmqLink(Place(0), addresses, keys[0], timing=Timing(meet=0.8)))
    assert "does not have the key" in text
    assert not impostor.poll(0)
    context.destroy(linger=0)


def test_unencrypted_messages_are_not_heard() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with pair() as (a, b):
        push = context.socket(zmq.PUSH)
        push.connect(b._peers[Place(0)].address)
        push.send(b"\x01" * 100)
        assert a.poll(0.3) == []
        b.send(Place(0), frame(1, sender=1))
        assert len(receive(a, 1)) == 1
    context.destroy(linger=0)


def test_one_worker_cannot_speak_for_another() -> None:
    addresses, keys = placed(free_addresses(3)), new_keys(3)
    links = [ZmqLink(Place(index), addresses, keys[index], timing=QUICK) for index in range(3)]
    meet(*links)
    links[2].place = Place(1)
    links[2].send(Place(0), frame(1, sender=1))
    with pytest.raises(FalkirkError, match="another's key"):
        receive(links[0], 1)
    for link in links:
        link.fail(FalkirkError("over"))


def test_who_waits_says_for_whom_and_gives_up(capfd: pytest.CaptureFixture[str]) -> None:
    addresses, keys = placed(free_addresses(3)), new_keys(3)
    text = meet_fails(ZmqLink(Place(1), addresses, keys[1], timing=Timing(meet=0.6)))
    said = capfd.readouterr().err
    for address in (addresses[Place(0)], addresses[Place(2)]):
        assert address in text
        assert f"at {address}" in said


def test_a_check_that_fails_stops_both() -> None:
    def meet_then_fail(link: ZmqLink) -> str:
        try:
            link.meet(b"hello", lambda place, greeting: None)
            return poll_until_lost(link, 5.0)[0]
        except WorkerLost as error:
            return str(error)
        finally:
            link.fail(FalkirkError("over"))

    addresses, keys = placed(free_addresses(2)), new_keys(2)
    links = [ZmqLink(Place(index), addresses, keys[index], timing=QUICK) for index in range(2)]

    def check(place: Place, greeting: bytes) -> None:
        raise FalkirkError(f"{place} is different")

    with ThreadPoolExecutor(2) as pool:
        here, there = pool.submit(meet_fails, links[0], check), pool.submit(meet_then_fail, links[1])
        assert here.result() == "worker 1 is different"
        assert there.result() == f"worker 0 at {addresses[Place(0)]} failed: worker 1 is different"


def test_a_port_that_is_taken_is_named() -> None:
    addresses, keys = placed(free_addresses(2)), new_keys(2)
    link = ZmqLink(Place(0), addresses, keys[0])
    with pytest.raises(FalkirkError, match="cannot listen at") as caught:
        ZmqLink(Place(0), addresses, keys[0])
    assert addresses[Place(0)] in str(caught.value)
    link.fail(FalkirkError("over"))


def test_strangers_who_take_all_descriptors_do_not_end_a_link() -> None:
    strangers = [socket.socket() for _ in range(30)]
    with pair() as (a, b):
        _, _, port = b._peers[Place(0)].address.rpartition(":")
        with few_descriptors():
            for stranger in strangers:
                stranger.setblocking(False)
                stranger.connect_ex(("127.0.0.1", int(port)))
            for number in range(5):
                a.send(Place(1), frame(number))
                b.send(Place(0), frame(number, sender=1))
                time.sleep(0.05)
            assert len(receive(a, 5)) == 5
            assert len(receive(b, 5)) == 5
    for stranger in strangers:
        stranger.close()
