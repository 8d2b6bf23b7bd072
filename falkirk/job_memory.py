"""`falkirk doctor --run STORE`: memory of each process of a running job.

The lock of the store names the command; all others are its descendants, but for the process that keeps Spark. That
one outlives the worker that has started it. It is found by the owner's file of one of the job's folders, which it
keeps open to notice the end of the job (`runtime/folders/scratch`).
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from falkirk.progress_view import size_text
from recovery.store.address import StoreAddress, Where
from recovery.store.identity import store_id
from recovery.store.interface import StoreBusy
from runtime.folders.scratch import OWNER
from timely.errors import FalkirkError

_PROCESSES = Path("/proc")
_KEEPER = "libraries.spark.daemon.daemon"
_NAMES = {
    "runtime.processes.fork_server": "fork server",
    "runtime.processes.worker": "worker",
    "runtime.processes.monitor": "monitor",
    "runtime.page.process": "page",
    _KEEPER: "Spark daemon",
}
"""Display names of processes by Python module."""


@dataclass(frozen=True, slots=True)
class JobProcess:
    """Process of a job, with its memory in bytes.

    `resident` counts memory that it shares with others; `share` has its part of that only.
    """

    pid: int
    name: str
    resident: int
    share: int


def show_memory(where: Where) -> int:
    """Print the processes of the job of a store, with their memory.

    Raises FalkirkError where there is no such job, or none on this machine.
    """
    found = job_processes(where)
    print(f"{'process':>8}  {'resident':>9}  {'its share':>9}")
    for each in found:
        print(f"{each.pid:>8}  {size_text(each.resident):>9}  {size_text(each.share):>9}  {each.name}")
    print(f"{'all':>8}  {'':>9}  {size_text(sum(each.share for each in found)):>9}  of {len(found)} processes")
    return 0


def job_processes(where: Where) -> list[JobProcess]:
    """Processes of the job of a store: the command first, parents before children.

    Raises FalkirkError where there is no such job, or none on this machine.
    """
    if not (_PROCESSES / "self" / "smaps_rollup").exists():
        raise FalkirkError("the memory of processes is told by Linux only")
    root = _user_of(StoreAddress.of(where))
    children = _children()
    found = _below(root, children)
    folders = {place for pid in found for place in _held(pid)}
    holders = [pid for pid in _all() if pid not in found and not folders.isdisjoint(_held(pid))]
    for pid in holders:
        found += [each for each in _below(pid, children) if each not in found]
    known = {pid: _command(pid) for pid in found}
    parents = {child: parent for parent, each in children.items() for child in each}
    measured = (_measured(pid, _name(pid, root, known, parents)) for pid in found)
    return [each for each in measured if each is not None]


def _user_of(address: StoreAddress) -> int:
    with address.open() as store:
        store_id(store)  # of a folder with other files nothing is touched
        try:
            with store.lock():
                pass
        except StoreBusy as busy:
            if busy.pid is None:
                raise FalkirkError(f"the job that uses {address} is not on this machine") from None
            return busy.pid
    raise FalkirkError(f"no job is using {address}")


def _all() -> list[int]:
    return [int(each) for each in os.listdir(_PROCESSES) if each.isdigit()]


def _children() -> dict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for pid in sorted(_all()):
        with suppress(OSError):
            text = (_PROCESSES / str(pid) / "stat").read_text()
            found[int(text.rpartition(")")[2].split()[1])].append(pid)
    return found


def _below(pid: int, children: dict[int, list[int]]) -> list[int]:
    return [pid, *(each for child in children.get(pid, ()) for each in _below(child, children))]


def _held(pid: int) -> set[str]:
    """Folders with an owner's file held open by a process."""
    found = set()
    with suppress(OSError):
        for file in os.listdir(_PROCESSES / str(pid) / "fd"):
            with suppress(OSError):
                path = os.readlink(_PROCESSES / str(pid) / "fd" / file)
                if os.path.basename(path) == OWNER:
                    found.add(os.path.dirname(path))
    return found


def _command(pid: int) -> list[str]:
    with suppress(OSError):
        return (_PROCESSES / str(pid) / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    return [""]


def _name(pid: int, root: int, known: dict[int, list[str]], parents: dict[int, int]) -> str:
    """Display name of a process, by its command line and parent.

    A fork has the command of its parent; those of the fork server say what they have become.
    """
    if pid == root:
        return "the command"
    command = known[pid]
    module = next((after for option, after in pairwise(command) if option == "-m"), "")
    if os.path.basename(command[0]) == "java":
        return "Java of Spark"
    if module.startswith("pyspark."):
        return "Python of Spark"
    if command == known.get(parents[pid]):
        if module == _KEEPER:
            return "Spark client"
        with suppress(OSError):
            return (_PROCESSES / str(pid) / "comm").read_text().strip()
    return _NAMES.get(module, " ".join(command)[:60])


def _measured(pid: int, name: str) -> JobProcess | None:
    """Memory of a process; None if it has just ended."""
    sizes = {}
    with suppress(OSError):
        for line in (_PROCESSES / str(pid) / "smaps_rollup").read_text().splitlines():
            what, _, size = line.partition(":")
            if what in ("Rss", "Pss"):
                sizes[what] = int(size.split()[0]) << 10
    return JobProcess(pid, name, sizes["Rss"], sizes["Pss"]) if sizes else None
