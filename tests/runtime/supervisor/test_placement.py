"""Spares of workers on this host: when they are prepared, and which of them make haste."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from recovery.place import Place, places
from recovery.store.address import StoreAddress
from runtime.control import FROM_CHILD, TO_CHILD, Begin, Control, Follow, Peer
from runtime.processes.worker import HASTE
from runtime.program import Program
from runtime.sources.limits import Limits
from runtime.supervisor import placement
from runtime.supervisor.placement import LocalWorkers, Task
from runtime.supervisor.processes import Child, Children
from runtime.supervisor.store import JobStore


class Started(Children):
    """Processes that are started on paper only: the arguments of each, in order."""

    def __init__(self, private: Path) -> None:
        super().__init__(2, private=str(private))
        self.arguments: list[tuple[str, ...]] = []

    def start(self, module: str, files: list[int], *more: str) -> Child:
        self.arguments.append(more)
        mine, theirs = socket.socketpair()
        self.others = [*getattr(self, "others", []), theirs]
        return self.meet(module, Control(mine, FROM_CHILD), None)


@contextmanager
def opened(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    copies: int = 1,
    mates: int = 0,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[tuple[LocalWorkers, Started, Callable[[float], None]]]:
    now = [100.0]
    monkeypatch.setattr(placement.time, "monotonic", lambda: now[0])

    def wait(seconds: float) -> None:
        now[0] += seconds

    with ExitStack() as resources:
        (tmp_path / "private").mkdir()
        children = resources.enter_context(Started(tmp_path / "private"))
        store = JobStore(resources, StoreAddress.of(tmp_path / "store"), lambda text: None)
        task = Task(
            Program(flow=Dataflow("job")), 2, Limits(), "job", tmp_path, store=store, copies=copies, mates=mates
        )
        local = LocalWorkers(children, task, note)
        resources.callback(local.close)
        yield local, children, wait


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[LocalWorkers, Started, Callable[[float], None]]]:
    with opened(tmp_path, monkeypatch) as found:
        yield found


def test_the_next_spare_waits_until_the_job_goes_on_and_then_makes_haste(
    place: tuple[LocalWorkers, Started, Callable[[float], None]],
) -> None:
    local, started, wait = place
    local.begin()
    for worker in range(2):
        local.needed(Place(worker))
    assert started.arguments == [(), ()]
    wait(0.6)
    local.turn()
    assert started.arguments == [(), (), ()], "the first spare may take its time"
    (lost,) = local.gone(local.workers[Place(1)])
    assert lost.place == Place(1)
    local.needed(Place(1))
    wait(1.0)
    local.turn()
    assert len(started.arguments) == 3, "the restore needs the processor more"
    local.restored()
    local.turn()
    assert len(started.arguments) == 3, "and so do the first epochs after it"
    wait(0.3)
    local.turn()
    assert started.arguments[3:] == [(HASTE,)]
    local.turn()
    assert len(started.arguments) == 4


def test_a_restore_that_does_not_end_does_not_put_off_the_next_spare_for_ever(
    place: tuple[LocalWorkers, Started, Callable[[float], None]],
) -> None:
    local, started, wait = place
    local.begin()
    local.needed(Place(0))
    local.needed(Place(1))
    local.gone(local.workers[Place(0)])
    local.needed(Place(0))
    assert started.arguments == [(), (), (HASTE,)], "there was no spare: it is needed at once"
    wait(6.0)
    local.turn()
    assert started.arguments[3:] == [(HASTE,)]


def test_a_copy_has_a_place_of_its_own_from_the_spare_to_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, monkeypatch, copies=2) as (local, started, _):
        local.begin()
        assert len(started.arguments) == 4, "a process is prepared for each place"
        ends = [Control(each, TO_CHILD) for each in started.others]
        for place in places(2, copies=2):
            local.needed(place)
        assert list(local.workers) == list(places(2, copies=2))
        assert [local.workers[place].incarnation for place in local.workers] == [1, 2, 3, 4]
        (begin,) = ends[2].read()[:1]
        assert begin == Begin(Place(0, 1), 3, (Place(0), Place(1))), "it is linked to all that were there"
        assert Peer(Place(0, 1)) in ends[0].read(), "its own worker's process at work among them"
        copy = local.workers[Place(0, 1)]
        assert local.fenced(Place(0, 1), 1, "late") == []
        assert local.workers[Place(0, 1)] is copy, "of an earlier process"
        (lost,) = local.gone(copy)
        assert (lost.place, lost.incarnation) == (Place(0, 1), 3)
        assert set(local.workers) == {Place(0), Place(1), Place(1, 1)}
        local.needed(Place(0, 1))
        assert (local.workers[Place(0, 1)].place, local.workers[Place(0, 1)].incarnation) == (Place(0, 1), 5)
        for end in ends:
            end.close()


def test_spares_become_mates_once_all_workers_are_there_and_mates_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, monkeypatch, mates=1) as (local, started, wait):
        local.begin()
        assert [local.needed(Place(worker)) for worker in range(2)] == [False, False]
        assert not local.mates
        for _ in range(4):
            wait(0.6)
            local.turn()
        assert len(started.arguments) == 5, "two workers, two mates and a spare"
        ends = [Control(each, TO_CHILD) for each in started.others]
        assert [end.read() for end in ends[2:]] == [[Follow(Place(0, 1))], [Follow(Place(1, 1))], []]
        mate = local.mates[1]
        assert mate.where == "worker-1.1"
        local.gone(local.workers[Place(1)])
        assert local.needed(Place(1)), "its mate takes over"
        assert local.workers[Place(1)] is mate
        assert mate.where == "worker-1"
        assert [type(message) for message in ends[3].read()] == [Begin]
        local.restored()
        wait(0.3)
        local.turn()
        assert set(local.mates) == {0, 1}, "the spare follows now"
        assert len(started.arguments) == 5
        wait(0.2)
        local.turn()
        assert len(started.arguments) == 6, "and there is another spare"
        for end in ends:
            end.close()


def test_a_worker_goes_on_without_a_mate_when_each_fails_before_it_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    with opened(tmp_path, monkeypatch, mates=1, note=notes.append) as (local, _, wait):
        local.begin()
        for worker in range(2):
            local.needed(Place(worker))

        def fail(times: int, caught_up: bool) -> None:
            for _ in range(times):
                for _ in range(3):
                    wait(1.0)
                    local.turn()
                if caught_up:
                    local.caught_up(local.mates[1], 0.5)
                assert local.gone(local.mates[1]) == []

        fail(12, True)
        assert all("another one begins anew" in note for note in notes)
        fail(4, False)
        assert "worker 1 goes on without a mate" in notes[-1]
        assert notes[-1].count("begins anew") == 0
        for _ in range(3):
            wait(1.0)
            local.turn()
        assert set(local.mates) == {0}
