"""Output of processes: it comes through whole, in order, and the last words of a killed process are there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.page.logs import read_log
from runtime.supervisor.output import Output


@contextmanager
def standard_output_to(end: int) -> Iterator[None]:
    """Standard output of this process leads elsewhere meanwhile."""
    saved = os.dup(1)
    os.dup2(end, 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def start(output: Output, script: str, place: str = "worker-0") -> tuple[subprocess.Popen[bytes], object]:
    streams = output.open()
    assert streams is not None
    out, err = streams.files
    process = subprocess.Popen([sys.executable, "-u", "-c", script], stdout=out, stderr=err, stdin=subprocess.PIPE)
    streams.started(process.pid, lambda: place)
    return process, streams


def test_all_that_is_written_comes_through_and_is_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    output = Output(tmp_path)
    process, streams = start(output, "import sys\nfor i in range(2000): print(i)\nprint('bad', file=sys.stderr)")
    assert process.wait(60) == 0
    words = output.end(streams, "ended with exit code 0")  # type: ignore[arg-type]
    output.close()
    said = capfd.readouterr()
    assert said.out.splitlines() == [str(i) for i in range(2000)]
    assert said.err == "bad\n"
    assert words == "bad"
    kept = read_log(tmp_path, "worker-0")
    assert [line.text for line in kept if line.stream == "o"] == [str(i) for i in range(2000)]
    assert {line.text for line in kept if line.stream == "e"} == {"bad"}
    assert (kept[-1].stream, kept[-1].text) == ("s", f"process {process.pid} ended with exit code 0")


def test_last_words_of_a_killed_process_are_read_without_its_line_end(tmp_path: Path) -> None:
    output = Output(tmp_path)
    script = "import sys\nsys.stderr.write('one\\ntwo, and then')\nsys.stdout.write('ready')\nsys.stdin.read()"
    process, streams = start(output, script)
    while not streams.rest.get("o"):  # type: ignore[attr-defined]
        pass
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    assert output.end(streams, "was killed by SIGKILL") == "one\ntwo, and then"  # type: ignore[arg-type]
    output.close()
    assert [line.text for line in read_log(tmp_path, "worker-0") if line.stream == "e"] == ["one", "two, and then"]


def test_a_process_sees_a_terminal_where_this_one_has_one(tmp_path: Path) -> None:
    import pty
    import tty

    master, slave = pty.openpty()
    tty.setraw(slave)
    with standard_output_to(slave):
        output = Output(tmp_path)
        process, streams = start(output, "import sys\nprint(sys.stdout.isatty(), sys.stderr.isatty())")
        process.wait(60)
        output.end(streams, "ended")  # type: ignore[arg-type]
        output.close()
    assert os.read(master, 100).split() == [b"True", str(os.isatty(2)).encode()]
    os.close(master)
    os.close(slave)


def test_a_terminal_that_takes_nothing_holds_up_no_end(tmp_path: Path) -> None:
    out, end = os.pipe()
    with standard_output_to(end):
        output = Output(tmp_path)
        process, streams = start(
            output, "import os, sys\nos.write(1, b'a line\\n' * 5000)\nprint('the last', file=sys.stderr)"
        )
        process.wait(60)
        done = threading.Event()
        threading.Thread(target=lambda: (output.end(streams, "ended"), done.set())).start()  # type: ignore[arg-type]
        assert done.wait(60)
        assert streams.last_words == "the last"  # type: ignore[attr-defined]
        taken = b""
        while taken.count(b"\n") < 5000:
            taken += os.read(out, 1 << 16)
        assert taken == b"a line\n" * 5000
    os.close(out)
    os.close(end)


def test_without_a_folder_nothing_is_changed() -> None:
    assert Output(None).open() is None
