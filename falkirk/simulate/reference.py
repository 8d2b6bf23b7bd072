"""Failure-free reference runs, and the first operator differing between two.

A program with another output under another schedule, or in another process, cannot be compared with anything after
a failure. In another process texts have other hashes, so sets of them another order; objects have other identities,
and the process another id.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from falkirk.simulate.judging import difference, order_of, shown
from falkirk.simulate.outside import Result, Violation, by_output
from falkirk.simulate.process import Process
from falkirk.simulate.world import World
from recovery.guarantees.promises import Alike, Promise
from runtime.program import Program, packed, unpacked
from runtime.supervisor.forked import environment
from timely.data.batch import Batch
from timely.data.codec import decode, encode
from timely.dataflow.dataflow import Dataflow
from timely.errors import CodecError, FalkirkError
from timely.io.memory import rows_of
from timely.time import Time, visible

SCHEDULES = (-1, -2)
"""Schedules of failure-free reference runs."""

MORE_SCHEDULES = range(-3, -19, -1)
"""Extra failure-free schedules, tried before a seed fails.

They matter for failures by something that the program has not promised.
"""

_SUM = 1 << 64
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class SimulationFailed(FalkirkError):
    """Raised for a forbidden behaviour under some seed.

    The message says how to see it again.
    """


@dataclass(slots=True)
class Reference:
    """Failure-free reference run.

    `sent`: for each operator (or chain of them that is one processor) and time a sum over all records that it has sent, the
    same in whatever order they were sent. `operators`: their names and lines.
    """

    result: Result
    promises: dict[str, Promise] = field(default_factory=dict)
    sent: dict[tuple[int, Time], int] = field(default_factory=dict)
    operators: dict[int, str] = field(default_factory=dict)


class _ListeningWorld(World):
    """World to record the output of every operator."""

    def __init__(self, build: Callable[[], Dataflow], workers: int, seed: int) -> None:
        super().__init__(build, workers, seed, ())
        self.sent: dict[tuple[int, Time], int] = {}
        self.operators: dict[int, str] = {}

    def _open(self, process: Process) -> None:
        super()._open(process)
        if process.session is None or process.recovery is None:
            return
        recorder = process.recovery.agent.recorder
        recorded = recorder.sent
        for p, processor in enumerate(process.session.plan.processors):
            names = ", ".join(f"{node.kind} {node.name!r}" for node in processor.nodes)
            self.operators[p] = f"{names} ({processor.node.site})"

        def sent(processor: int, port: int, event: Time, time: Time, batch: Batch) -> None:
            key = processor, time
            self.sent[key] = (self.sent.get(key, 0) + _sum(batch)) % _SUM
            recorded(processor, port, event, time, batch)

        recorder.sent = sent  # type: ignore[method-assign]


def _sum(batch: Batch) -> int:
    total = 0
    for record in rows_of(batch):
        text = _ADDRESS.sub("", order_of(record))
        total += int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=8).digest())
    return total


def portable(result: Result) -> Result:
    """Result for other processes, with text in place of records unfit for transfer."""
    found: Result = {}
    for key, records in result.items():
        try:
            encode(records)
            found[key] = records
        except CodecError:
            found[key] = [_ADDRESS.sub("", order_of(record)) for record in records]
    return found


def reference(build: Callable[[], Dataflow], workers: int, schedule: int, listen: bool = False) -> Reference:
    """The program's result without failures, in this process.

    Args:
        listen: note what every operator sends.

    Raises:
        SimulationFailed: if it does not get so far.
        FalkirkError: of the program itself.
    """
    world = _ListeningWorld(build, workers, schedule) if listen else World(build, workers, schedule, ())
    try:
        world.run()
    except Violation as error:
        raise SimulationFailed(f"the program does not even run without failures: {error}") from error
    if isinstance(world, _ListeningWorld):
        return Reference(world.outside.result(), world.outside.promises, world.sent, world.operators)
    return Reference(world.outside.result(), world.outside.promises)


def compare(
    one: Reference, other: Reference, listen: Callable[[], tuple[Reference, Reference]], why: str
) -> dict[str, Alike]:
    """Likeness of two runs by output.

    It is at least as promised, and further where anything is promised.

    Args:
        listen: both again, with what every operator has sent. Only asked when they differ.
        why: on what the output depends if they do.

    Raises:
        SimulationFailed: if they differ although nothing in the program says that they may; naming the output, and the first
            operator that differs.
    """
    found: dict[str, Alike] = {}
    first, second = by_output(one.result), by_output(other.result)
    for name in sorted(first.keys() | second.keys()):
        given = first.get(name, {}), second.get(name, {})
        promised = one.promises[name].alike if name in one.promises else Alike.EPOCHS
        found[name] = next(level for level in reversed(Alike) if difference(level, *given) is None)
        if promised == Alike.NOT:  # what is done again may differ where no two runs without failures do
            found[name] = promised
        if found[name] < promised and (differ := difference(promised, *given)) is not None:
            raise SimulationFailed(
                f"the program is not deterministic: even without failures, {name!r} gives{differ.where} now "
                f"{shown(differ.one)} and now {shown(differ.other)}, depending on {why}.{_first(*listen())} What it gives "
                "after a failure can then be compared with nothing. If that cannot be helped, declare why: by "
                ".nondeterministic(reason)"
            )
    return found


def _first(one: Reference, other: Reference) -> str:
    for processor, time in sorted(one.sent.keys() | other.sent.keys()):
        if one.sent.get((processor, time)) != other.sent.get((processor, time)):
            named = one.operators.get(processor) or other.operators[processor]
            return f" The first that sends something else is the {named}, at time {visible(time)}."
    return ""


# In another process


@dataclass(frozen=True, slots=True)
class _Task:
    program: Program
    workers: int


class Elsewhere:
    """The same run in its own process, under another PYTHONHASHSEED; starts at once."""

    def __init__(self, program: Program, workers: int) -> None:
        self.hash_seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
        task = packed(_Task(program, workers))
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115  # it is closed with the process
        file, theirs = os.pipe()
        self._answer = os.fdopen(file, "rb")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "falkirk.simulate.reference", str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._printed,
                pass_fds=[theirs],
                env={**environment(1), "PYTHONHASHSEED": self.hash_seed},
            )
        finally:
            os.close(theirs)
        assert self._process.stdin is not None
        with suppress(OSError), self._process.stdin as stream:  # one that is dead already says why
            stream.write(task)

    def wait(self) -> Reference:
        """Result of the run.

        Raises SimulationFailed if there is none.
        """
        data = self._answer.read()
        self._process.wait()
        self._printed.seek(0)
        printed = self._printed.read().decode(errors="replace").strip()
        if not data:
            raise SimulationFailed(
                f"the program does not run in another process (PYTHONHASHSEED={self.hash_seed}): "
                f"{printed.splitlines()[-1] if printed else 'it ended without a word'}"
            )
        error, result, sent, operators = decode(data)
        if error:
            raise SimulationFailed(
                f"the program fails in another process (PYTHONHASHSEED={self.hash_seed}), even without failures: {error}"
            )
        return Reference(
            {(name, time): rows for name, time, rows in result},
            {},
            {(processor, time): total for processor, time, total in sent},
            dict(operators),
        )

    def stop(self) -> None:
        """Stop the run."""
        self._process.kill()
        self._process.wait()
        self._answer.close()
        self._printed.close()


def _main() -> int:
    task: _Task = unpacked(sys.stdin.buffer.read())
    answer: Any
    try:
        found = reference(task.program.build, task.workers, SCHEDULES[0], listen=True)
        answer = (
            "",
            [(name, time, rows) for (name, time), rows in portable(found.result).items()],
            [(processor, time, total) for (processor, time), total in found.sent.items()],
            list(found.operators.items()),
        )
    except FalkirkError as error:
        answer = (str(error), [], [], [])
    with os.fdopen(int(sys.argv[1]), "wb") as file:
        file.write(encode(answer))
    return 0


if __name__ == "__main__":
    sys.exit(_main())
