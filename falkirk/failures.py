"""Failures of commands: one message for people and one exit code for scripts.

0 all went well; 1 the program failed; 2 the command line is wrong; 3 a worker was lost, for good or again and again;
128 + n stopped by signal n, so 130 for Ctrl-C.
"""

from __future__ import annotations

import errno
import linecache
import os
import re
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path

from runtime import program as program_module
from timely.errors import PACKAGES, FalkirkError, WorkerLost, error_text, shown

FAILED = 1
USAGE = 2
WORKER_LOST = 3

_ROOT = Path(__file__).resolve().parent.parent
_NOT_THE_USERS = tuple(
    {
        *(f"{_ROOT / package}{os.sep}" for package in PACKAGES),
        *(
            f"{path}{os.sep}"
            for name, path in sysconfig.get_paths().items()
            if name in ("stdlib", "purelib", "platlib")
        ),
        "<frozen ",
    }
)
_TRACE_OF_WORKER = re.compile(r"worker (\d+) failed:\n(Traceback .*)", re.DOTALL)
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Failure:
    """Error class, message for the user, and exit code."""

    kind: str
    message: str
    code: int


def explain(error: BaseException) -> Failure:
    """Failure for an error raised by running or building a program."""
    kind = type(error).__name__
    if isinstance(error, WorkerLost):
        return Failure(kind, str(error), WORKER_LOST)
    if isinstance(error, FalkirkError):
        code = USAGE if _raised_by_lookup(error) else FAILED
        return Failure(kind, _without_trace(str(error)), code)
    if isinstance(error, SyntaxError) and error.filename:
        line = (error.text or "").strip()
        shown = f"\n    {line}" if line else ""
        return Failure(kind, f"{error.filename}:{error.lineno}: {kind}: {error.msg}{shown}", FAILED)
    if isinstance(error, TypeError) and _raised_by_lookup(error):
        return Failure(kind, f"{error}; its arguments are given as --arg name=value", USAGE)
    frames = [(frame.filename, frame.lineno or 0, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
    what = "the program called sys.exit()" if isinstance(error, SystemExit) else kind
    text = error_text(error).replace(kind, what, 1)
    if isinstance(error, OSError) and error.errno is not None and _users(frames) is None:
        return Failure(kind, _refused(error), FAILED)
    if isinstance(error, ModuleNotFoundError) and error.name:
        text += f"; install it in the Python environment that runs falkirk ({sysconfig.get_path('scripts')})"
    return Failure(kind, _located(frames, text), FAILED)


def _raised_by_lookup(error: BaseException) -> bool:
    """True if the program named on the command line could not be found or loaded."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename == program_module.__file__


def _users(frames: list[tuple[str, int, str]]) -> tuple[str, int, str] | None:
    """Innermost stack frame in the user's code."""
    return next((frame for frame in reversed(frames) if not frame[0].startswith(_NOT_THE_USERS)), None)


_ADVICE = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "allow more open files on this host",
    errno.ENOMEM: "free memory",
    errno.EAGAIN: "allow more processes (ulimit -u)",
    errno.EACCES: "give this user the right to it, or choose another place",
    errno.EPERM: "give this user the right to it, or choose another place",
    errno.EROFS: "choose another place",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "the links lead in a circle: give another path",
    errno.EIO: "check the disk",
}


def _refused(error: OSError) -> str:
    """Message about a refusal of the operating system, with advice."""
    about = shown(error.filename, 200) + ": " if error.filename is not None else "the system says: "
    advice = _ADVICE.get(error.errno or 0, "check that it is there and may be used")
    return f"{about}{error.strerror or error}; {advice}, and try again"


def _located(frames: list[tuple[str, int, str]], text: str) -> str:
    """Text with the innermost line of the user's code."""
    own = _users(frames)
    if own is None:
        place = f" ({frames[-1][0]}:{frames[-1][1]})" if frames else ""
        return f"{text}{place}\nThis comes from inside Falkirk or a library; --traceback shows how it came to that."
    file, line, function = own
    where = f"{file}:{line}" if function == "<module>" else f"{file}:{line} in {function}"
    source = linecache.getline(file, line).strip()
    return f"{where}: {text}" + (f"\n    {source}" if source else "")


def _without_trace(text: str) -> str:
    """Message without the traceback of a worker: last line, and the user's line."""
    found = _TRACE_OF_WORKER.fullmatch(text)
    if found is None:
        return text
    trace = found[2].rstrip()
    frames = [(file, int(line), function) for file, line, function in _FRAME.findall(trace)]
    last = re.split(r"\n(?=\S)", trace)[-1]
    return f"worker {found[1]}: {_located(frames, last)}"
