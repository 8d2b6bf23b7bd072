"""A process that reads what it is told to: cases of fuzz targets, each run in a fork of its own with bounded memory.

`python -m tests.fuzz.running`: a line of JSON in, `[target, seed, first, count]`; a line of JSON out, null if all went well,
else how a case failed. Forks are cheap and start with everything imported: a crash costs one fork, and is put down to its case.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tests.fuzz.targets import Target

CASE_BYTES = 200 << 20
"""Of memory beyond what the cases before have needed."""
ROOM = 3 << 30
"""Of address space beyond what the process has when it begins."""

_PROBES = 400
_INDEX = struct.Struct("<q")


@dataclass(frozen=True)
class Failure:
    """A case that did not end as it may. `smaller` is as much of it as still fails."""

    target: str
    seed: int
    index: int
    why: str
    data: str
    smaller: str

    def __str__(self) -> str:
        return (
            f"case ({self.target!r}, seed {self.seed}, index {self.index}): {self.why}\n"
            f"again: python -m tests.fuzz.running {self.target} {self.seed} {self.index}\n"
            f"smallest: bytes.fromhex({self.smaller!r})"
        )


def run(target: Target, seed: int, first: int, count: int) -> Failure | None:
    """Run some cases of a target; the first that fails, made smaller."""
    place = mmap.mmap(-1, _INDEX.size)

    def cases() -> str | None:
        with target.reader() as read:
            for sample in target.samples():  # what stays is made now, and samples must be readable
                read(sample)
            for index in range(first, first + count):
                _INDEX.pack_into(place, 0, index)
                why = _judge(target, read, target.case(seed, index))
                if why is not None:
                    return why
        return None

    _INDEX.pack_into(place, 0, -1)
    why = _in_fork(cases)
    if why is None:
        return None
    index = _INDEX.unpack_from(place)[0]
    if index < 0:
        return Failure(target.name, seed, index, f"before the first case: {why}", "", "")
    data = bytes.fromhex(_in_fork(lambda: target.case(seed, index).hex()) or "")
    smaller = data if "SIGPROF" in why else _smallest(target, data)  # each try would take as long again
    return Failure(target.name, seed, index, why, data.hex(), smaller.hex())


def fails(target: Target, data: bytes) -> str | None:
    """The reason why these bytes fail, in a fork of its own; None if they do not."""

    def case() -> str | None:
        with target.reader() as read:
            for sample in target.samples():
                read(sample)
            return _judge(target, read, data)

    return _in_fork(case)


def _judge(target: Target, read: Callable[[bytes], object], data: bytes) -> str | None:
    signal.setitimer(signal.ITIMER_PROF, target.seconds)  # its signal ends the process
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        read(data)
    except target.allowed as error:
        text = str(error)
        if not text or len(text) > 20_000:
            return f"an error of {len(text)} characters"
        text.encode(errors="surrogateescape")
    except BaseException as error:
        return f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error)[-6:])}"[:3000]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown << 10 > CASE_BYTES + 50 * len(data):
        return f"{len(data):,} bytes took {grown >> 10} MiB"
    return None


def _in_fork(work: Callable[[], str | None]) -> str | None:
    """The answer of `work` in a process of its own, or how that ended."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        code = 1
        try:
            os.close(reading)
            warnings.simplefilter("ignore")
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            limit = _address_space() + ROOM
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            try:
                why = work()
            except BaseException as error:
                why = f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error)[-6:])}"
            with os.fdopen(writing, "wb") as answer:
                answer.write(b"" if why is None else why.encode(errors="backslashreplace"))
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as heard:
        said = heard.read().decode()
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGPROF:
            return "it took too much processor time (SIGPROF)"
        return f"the process was ended by {signal.Signals(number).name}"
    if os.WEXITSTATUS(status):
        return f"the process ended with code {os.WEXITSTATUS(status)}"
    return said or None


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * mmap.PAGESIZE


def _smallest(target: Target, data: bytes) -> bytes:
    """As few of the bytes as still fail: pieces are left out, ever smaller ones, while that is so."""
    probes, size = 0, len(data) // 2
    until = time.monotonic() + 30
    while size and probes < _PROBES and time.monotonic() < until:
        at, smaller = 0, False
        while at < len(data) and probes < _PROBES and time.monotonic() < until:
            probes += 1
            without = data[:at] + data[at + size :]
            if fails(target, without) is not None:
                data, smaller = without, True
            else:
                at += size
        if not smaller:
            size //= 2
    return data


def main() -> None:
    """Serve requests, or run the one case or cases that the arguments name."""
    from tests.fuzz.broken import BROKEN
    from tests.fuzz.decoders import TARGETS  # all that is fuzzed is imported before the first fork

    known = TARGETS | BROKEN

    if len(sys.argv) > 1:
        name, seed, first, *more = sys.argv[1:]
        failure = run(known[name], int(seed), int(first), int(more[0]) if more else 1)
        print(failure or "it went well")
        sys.exit(failure is not None)
    for line in sys.stdin:
        name, seed, first, count = json.loads(line)
        failure = run(known[name], seed, first, count)
        print(json.dumps(None if failure is None else asdict(failure)), flush=True)


if __name__ == "__main__":
    main()
