"""The link between two workers of a cluster: it is as patient as whoever runs the job."""

from __future__ import annotations

import socket
import threading

import zmq

from libraries.spark.cluster.task import ProcessInput
from libraries.spark.cluster.worker import PATIENCE, _link
from recovery.place import Place, places


def test_a_worker_that_answers_late_is_not_lost_before_it_is_given_up_by_who_runs_the_job() -> None:
    keys, secret = zip(*[[key.decode() for key in zmq.curve_keypair()] for _ in range(2)])
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    addresses = tuple(f"tcp://127.0.0.1:{each.getsockname()[1]}" for each in listeners)
    there = tuple(zip(places(2), addresses))
    public = tuple(zip(places(2), keys))
    links = {}

    def meet(index: int) -> None:
        kept = ProcessInput(b"", Place(index), 1, there, public, secret[index])
        links[index] = _link(kept, listeners[index], False, PATIENCE * 40.0)

    threads = [threading.Thread(target=meet, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for link in (links[0], links[1]):
        assert link is not None
        for peer in link._peers.values():
            assert peer.push.heartbeat_timeout == peer.push.heartbeat_ttl == 120_000
    for link in links.values():
        assert link is not None
        link.fail(RuntimeError("over"))
