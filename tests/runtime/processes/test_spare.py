"""A process that waits as a spare gets ready for what it may have to restore: no more than the job's store asks for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import socket, sys, threading, time
from pathlib import Path
import runtime.processes.worker as worker
from recovery.store.address import StoreAddress
worker._LOOK_SECONDS = 0.01
looked = []
size = worker._size
worker._size = lambda address: looked.append(address) or size(address)
here, there = socket.socketpair()

def until_ready():
    while len(looked) < 5 and "numba" not in sys.modules:
        time.sleep(0.01)
    there.send(b"a task")

threading.Thread(target=until_ready).start()
worker.wait_warm(here, StoreAddress.of(sys.argv[1]), float(sys.argv[2]))
print("numba" in sys.modules, here.recv(9))
"""


@pytest.mark.check
@pytest.mark.parametrize("much", [False, True])
def test_a_spare_loads_numba_where_there_is_much_to_restore(much: bool, tmp_path: Path) -> None:
    (tmp_path / "worker-001").mkdir()
    with (tmp_path / "worker-001" / "segment-00000001").open("wb") as file:
        file.truncate(32 << 20 if much else 1 << 20)
    command = [sys.executable, "-c", CODE, str(tmp_path), "0.01"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == [str(much), "b'a", "task'"]
