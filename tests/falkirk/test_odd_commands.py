"""The command line with odd values everywhere: each is done, or refused in words. Nothing comes from inside Falkirk."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import falkirk.cli
from falkirk.cli import app

PROGRAM = """
from falkirk import Dataflow, Iterable
def build(n=4):
    flow = Dataflow("odd")
    flow.source("in", Iterable(range(n))).map(lambda x: x + 1).capture("out")
    return flow
"""

NUMBERS = [
    *(
        "0",
        "-1",
        "1",
        "2.5",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "²",
        "٣",
        "99999999999999999999",
        "9" * 5000,
        "0x10",
        "1_000",
    ),
    *("", " ", "\0", "-", "--", "--1", "true", "é", "\udcff", "1;2", "none", "0,0", "¼"),
]
PLACES = [
    *(
        "",
        ".",
        "/",
        "/dev/null",
        "/dev/full",
        "/dev/zero",
        "/proc/self/mem",
        "/proc/1/root/x",
        "no/such/folder/x",
        "a\0b",
    ),
    *(
        "x" * 300,
        "y/" * 3000,
        "\udcff",
        "-",
        "--",
        "~",
        "file.txt",
        "folder",
        "fifo",
        "socket",
        "broken-link",
        "loop-link",
    ),
    *(
        "unreadable",
        "http://",
        "http://x:²/",
        "http://[::1",
        "http://127.0.0.1:1/",
        "unix:",
        "unix:/nowhere",
        "unix:" + "z" * 200,
    ),
]
TEXTS = [
    *(
        "",
        "=",
        "a",
        "a=b",
        "n=3",
        "n=x",
        "n=" + "[" * 3000,
        "n=" + "9" * 5000,
        "n=1e999",
        "é=1",
        "no-name=1",
        "=1",
        "n=\0",
    ),
    *(
        "n={",
        "self=1",
        "kill",
        "kill,kill",
        "flood",
        ",",
        "worker:0",
        "worker:²",
        "worker:-1",
        "worker:99999999999999999999",
    ),
    *(
        "worker:",
        "out@0",
        "out@²",
        "@",
        "\udcff",
        "x" * 10000,
        "tcp://a:1",
        "tcp://a:²",
        "tcp://:0",
        "tcp://a:99999999999999999999",
    ),
    *("ipc://x", "spark://", "spark://x:²", "::", "[::]", "256.1.1.1", "local[²]", "none"),
]
PROGRAMS = [
    *(
        "app.py",
        "app.py:build",
        "app.py:nothing",
        "app.py:",
        "app.py::",
        "app.py:PROGRAM",
        "no.py",
        "folder",
        "folder.py",
    ),
    *(
        "file.txt",
        "broken.py",
        "binary.py",
        "empty.py",
        "exits.py",
        "raises.py",
        "latin.py",
        "nul.py",
        "deep.py",
        ":",
        "",
        "\0.py",
    ),
    *("/dev/null", "fifo", "\udcff.py", "badstr.py", "interrupts.py", "x" * 300 + ".py"),
]


def command(draw: st.DrawFn) -> list[str]:
    """A command with one to three options, each with an odd value."""
    number, place, text = st.sampled_from(NUMBERS), st.sampled_from(PLACES), st.sampled_from(TEXTS)
    common = {"--arg": text}
    name, arguments, options = draw(
        st.sampled_from(
            [
                (
                    "run",
                    st.sampled_from(PROGRAMS),
                    {
                        **common,
                        **dict.fromkeys(
                            ["-w", "--max-epochs", "--max-bytes", "--every", "--heartbeat-timeout"], number
                        ),
                        **dict.fromkeys(["--index", "--ui-port"], number),
                        **dict.fromkeys(["--hosts", "--store", "--monitor", "--events"], place),
                        **dict.fromkeys(["--ui-host", "--spark-conf"], text),
                    },
                ),
                ("graph", st.sampled_from(PROGRAMS), {**common, "--json": None, "--mermaid": None}),
                ("stop", place, {}),
                ("inspect", place, {"--port": number, "--host": text}),
                ("page", place, {"--port": number, "--host": text}),
                ("whatif", place, {"--kill": text, "--json": None}),
                ("keys", place, {"-w": number, "--address": text}),
                (
                    "simulate",
                    st.sampled_from(PROGRAMS),
                    {
                        **dict.fromkeys(["--first-seed", "-w"], number),
                        "--seeds": number,
                        "--keep": text,
                        "--faults": text,
                    },
                ),
                ("bench", text, dict.fromkeys(["-w", "--size", "--runs"], number)),
                ("monitor", place, {"--listen": place}),
            ]
        )
    )
    words = [name, draw(arguments)]
    for option in draw(st.lists(st.sampled_from(sorted(options)), max_size=3, unique=True)) if options else []:
        words.append(option)
        if options[option] is not None:
            words.append(draw(options[option]))
    return words


commands = st.composite(command)()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of programs, and of things that are no programs."""
    folder = tmp_path_factory.mktemp("odd")
    here = Path.cwd()
    os.chdir(folder)
    (folder / "app.py").write_text(PROGRAM)
    for name in ("folder", "folder.py", "unreadable"):
        (folder / name).mkdir()
    (folder / "unreadable").chmod(0)
    for name, text in {
        "file.txt": "hello\n",
        "broken.py": "def build(:\n",
        "empty.py": "",
        "exits.py": "import sys\nsys.exit(3)\n",
        "raises.py": "raise ValueError\n",
        "deep.py": f"flow = {'(' * 500}1{')' * 500}\n",
        "badstr.py": "class E(Exception):\n    def __str__(self): return 1 // 0\nraise E\n",
        "interrupts.py": "raise KeyboardInterrupt\n",
        "nul.py": "a = 1\0\n",
    }.items():
        (folder / name).write_text(text)
    (folder / "latin.py").write_bytes("é = 1".encode("latin-1"))
    (folder / "binary.py").write_bytes(bytes(range(256)))
    os.mkfifo(folder / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("socket")
    os.symlink("nowhere", folder / "broken-link")
    os.symlink("loop-link", folder / "loop-link")
    yield folder
    listener.close()
    os.chdir(here)


@contextmanager
def undone_afterwards() -> Iterator[None]:
    """The parts of this process that programs change."""
    path, modules, finders = list(sys.path), set(sys.modules), list(sys.meta_path)
    try:
        yield
    finally:
        sys.path[:], sys.meta_path[:] = path, finders
        for name in set(sys.modules) - modules:
            if getattr(sys.modules[name], "__file__", None) and "odd" in str(sys.modules[name].__file__):
                del sys.modules[name]


def outcome(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The exit code of a command in this process, and all that it says."""
    said = io.StringIO()
    code: object = 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def leave(code: int) -> None:
        raise SystemExit(code)

    before = signal.signal(signal.SIGALRM, interrupt)
    with monkeypatch.context() as patch, undone_afterwards(), redirect_stdout(said), redirect_stderr(said):
        patch.setattr(falkirk.cli, "_leave", leave)
        patch.setenv("COLUMNS", "200")
        # What serves for ever is interrupted, as by Ctrl-C; again and again, as a callback of the collector swallows it.
        signal.setitimer(signal.ITIMER_REAL, 10.0, 1.0)
        try:
            app(words, prog_name="falkirk")
        except SystemExit as end:
            code = end.code
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
    return (code if isinstance(code, int) else 0 if code is None else 1), said.getvalue()


_SERVE = ("monitor", "inspect", "page", "simulate", "bench", "demo", "stop", "whatif", "doctor")
"""Commands that may take as long as a test waits."""

_NO_PLACES = ("no/such/folder/x", "a\0b", "file.txt", "fifo", "socket", "loop-link")


def runs_for_real(words: list[str]) -> bool:
    """True if a command would start a job with processes, or serve until it is ended: other tests do that."""
    if words[0] in ("monitor", "inspect", "page"):
        return words[1] not in _NO_PLACES
    if words[0] == "simulate":
        return words[1] in ("app.py", "app.py:build")
    if words[0] == "run" and words[1] in ("app.py", "app.py:build"):
        return "--store" in words or "--ui-host" in words or "-w" in words
    return False


@pytest.mark.usefixtures("place")
@settings(max_examples=settings().max_examples * 2)
@given(words=commands.filter(lambda words: not runs_for_real(words)))
@example(words=["run", "nul.py"])
def test_odd_commands_are_done_or_refused_in_words(words: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        code, said = outcome(words, patch)
    assert "inside Falkirk" not in said, (words, said)
    assert "Traceback" not in said, (words, said)
    assert code in (0, 1, 2, 130), (words, code, said)
    assert code != 130 or "interrupts.py" in words or words[0] in _SERVE, (words, said)
    assert code == 0 or re.search(r"\w", said), words
    assert len(said) < 20_000


@pytest.mark.usefixtures("place")
def test_a_pipe_for_events_is_refused_and_does_not_hold_the_command() -> None:
    with pytest.MonkeyPatch.context() as patch:
        code, said = outcome(["run", "app.py", "--store", "store", "--events", "fifo"], patch)
    assert code == 1, said
    assert "events cannot be written to 'fifo': it is a pipe, and nobody reads it" in said
