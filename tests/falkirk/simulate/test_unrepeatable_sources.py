"""Sources that cannot be read again, in simulated jobs: what was acknowledged to whoever sends is never lost."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

import pytest

from falkirk.simulate.outside import Around, Outside
from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Ephemeral, Lazy
from runtime.sources.replay_buffer import KeptPartition
from timely.dataflow.graph import Graph
from timely.io.interface import Chunk, End, Partition, Position, Wait


class Client:
    """Sends its requests over one connection after the other, on each of them those that were not acknowledged."""

    def __init__(self, name: str, requests: Sequence[str]) -> None:
        self.name = name
        self.requests = requests
        self.acknowledged: set[str] = set()
        self.connections = 0


class Connection:
    """One connection of a client, as a partition. Position: how many requests came over it."""

    def __init__(self, client: Client) -> None:
        self.name = client.name
        client.connections += 1
        self._client = client
        self._left = deque(request for request in client.requests if request not in client.acknowledged)
        self._sent: list[str] = []

    def read(self) -> Chunk | Wait | End:
        """The next two requests; two such make an epoch."""
        if not self._left:
            return End()
        some = [self._left.popleft() for _ in range(min(2, len(self._left)))]
        epoch = len(self._sent) // 4
        self._sent += some
        return Chunk(epoch, some, len(self._sent), closes=len(self._sent) // 4 > epoch)

    def seek(self, position: Position) -> None:
        """Never."""
        raise AssertionError("a source that cannot be read again was told to go back")

    def ack(self, position: Position) -> None:
        """These requests have their answer."""
        assert position is None or isinstance(position, int)
        assert (position or 0) <= len(self._sent), "more is acknowledged than came over this connection"
        self._client.acknowledged.update(self._sent[: position or 0])

    def close(self) -> None:
        """Its client will connect again."""


class Clients:
    """Client i is worker i's, modulo their number."""

    rereadable = False

    def __init__(self, clients: Sequence[Client]) -> None:
        self._clients = clients

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """The connections that this worker has."""
        return [Connection(client) for i, client in enumerate(self._clients) if i % workers == worker]


class Answers(Outside):
    """Takes what is captured, and leaves the sources as they are."""

    def isolated(self, graph: Graph, around: Around) -> Graph:
        return graph


class Job:
    """One simulated job with three clients."""

    def __init__(self, workers: int, seed: int, kinds: Sequence[str]) -> None:
        self.clients = [Client(f"client-{i}", [f"{i}.{number}" for number in range(36)]) for i in range(3)]
        self.world = World(self.build, workers, seed, kinds)
        self.world.outside = Answers()

    def build(self) -> Dataflow:
        flow = Dataflow("clients")
        with flow.region("front", policy=Ephemeral()):
            source = flow.source("in", Clients(self.clients)).map(lambda request: request)
        with flow.region("back", policy=Lazy(every=2)):
            source.key_by(lambda request: request[-1]).fold(list, _append, over="time", name="all").records().capture(
                "out"
            )
        return flow

    def run(self) -> None:
        """Raises AssertionError if something acknowledged, or read in a process that lives, has no answer."""
        self.world.run()
        answered = Counter(
            request
            for records in self.world.outside.exactly.values()
            for _, requests in records
            for request in requests
        )
        for client in self.clients:
            sent = set(client.requests) if client.connections == 1 else client.acknowledged
            assert not sent - answered.keys(), f"{client.name} waits for {sorted(sent - answered.keys())} for ever"


def _append(requests: list[str], request: str) -> list[str]:
    return [*requests, request]


def test_without_its_memory_of_what_came_a_living_process_loses_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeptPartition, "seek", lambda self, position: None)

    def runs() -> None:
        for seed in range(40):
            Job(3, seed, ("kill",)).run()

    with pytest.raises(AssertionError, match="for ever"):
        runs()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_what_was_acknowledged_is_never_lost_nor_what_a_living_process_has_read(workers: int) -> None:
    rounds = again = 0
    for seed in range(10):
        job = Job(workers, seed, ("kill", "network", "job", "zombie"))
        job.run()
        rounds += sum(kind == "decided" for _, kind, _ in job.world.log)
        again += sum(client.connections > 1 for client in job.clients)
    assert rounds > 10
    assert again > 5
