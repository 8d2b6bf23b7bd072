"""Programs of jobs, and their way to the worker processes.

A program is a file and a name, or the dataflow itself.

What travels as the dataflow itself is pickled by cloudpickle, and only ever read by processes that we started, from the
pipe that we gave them.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from recovery.place import Place
from runtime.control import Built
from runtime.imports import RESERVED, import_from
from timely.data.codec.classes import register, registered_in
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.fingerprint import differences, fingerprint, outline, read_outline
from timely.dataflow.functions import function_changes, functions_of
from timely.dataflow.plan import Plan
from timely.errors import FalkirkError, user_site

loading: list[str] = []
"""Files of the programs being loaded."""


def check_not_loading() -> None:
    """Refuse to run a job while a program is being loaded.

    Each of its workers would run one, and so would the process that started them.

    Raises:
        FalkirkError: with the user's line.
    """
    if loading:
        raise FalkirkError(
            f"{user_site()}: falkirk.run() is called while {loading[-1]} is read to find its dataflow, and would be by "
            'each worker: put that behind if __name__ == "__main__":, or run the file with python'
        )


@dataclass(frozen=True, slots=True)
class Program:
    """Program of a job: a file and a name, or a dataflow.

    Either `path` (with the `name` of a Dataflow, or of a function that builds one from `args`), or `flow`.
    """

    path: str | None = None
    name: str | None = None
    args: dict[str, Any] = field(default_factory=dict)
    flow: Dataflow | Callable[..., Dataflow] | None = None

    def build(self) -> Dataflow:
        """Build the dataflow.

        Raises FalkirkError when the file or the name is missing or holds something else.
        """
        found: Any = self.flow if self.path is None else self._load(Path(self.path))
        flow = found(**self.args) if not isinstance(found, Dataflow) and callable(found) else found
        if not isinstance(flow, Dataflow):
            what = f"{self.path}:{self.name}" if self.path and self.name else self.path or "the program"
            if flow is None:
                raise FalkirkError(f"{what} builds nothing: the function must return the Dataflow")
            raise FalkirkError(f"{what} is {type(flow).__name__}, not a Dataflow or a function that returns one")
        return flow

    def _load(self, path: Path) -> Any:
        if not path.is_file():
            raise FalkirkError(
                f"there is no program {path}; give the path of a Python file, as in app.py or app.py:name"
            )
        module_name = path.stem if path.stem.isidentifier() and path.stem not in RESERVED else "falkirk_program"
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None:
            raise FalkirkError(f"{path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        import_from(str(path.parent.resolve()))
        loading.append(str(path))
        try:
            spec.loader.exec_module(module)
        except SyntaxError as error:
            if error.filename is None:
                raise FalkirkError(f"{path} is not a Python program: {error.msg}") from error
            raise
        except ValueError as error:  # from Python 3.11.4 on a SyntaxError
            if b"\0" not in path.read_bytes():
                raise
            raise FalkirkError(f"{path} is not a Python program: {error}") from error
        finally:
            loading.pop()
        if self.name is not None:
            if not hasattr(module, self.name):
                there = ", ".join(
                    name for name, value in vars(module).items() if _may_be_meant(name, value, module_name)
                )
                raise FalkirkError(f"{path} has no {self.name!r}" + (f"; it has {there}" if there else ""))
            return getattr(module, self.name)
        for candidate in ("flow", "build"):
            if hasattr(module, candidate):
                return getattr(module, candidate)
        flows = [name for name, value in vars(module).items() if isinstance(value, Dataflow)]
        if len(flows) == 1:
            return getattr(module, flows[0])
        raise FalkirkError(
            f"{path} should hold one Dataflow, or a function build(); found {', '.join(flows) or 'none'}: "
            f"say which, as in {path}:name"
        )


def _may_be_meant(name: str, value: Any, module: str) -> bool:
    """True if `name` may be meant: a dataflow, or a function of the program itself."""
    return isinstance(value, Dataflow) or (callable(value) and getattr(value, "__module__", None) == module)


def parse_program(text: str, args: dict[str, Any] | None = None) -> Program:
    """Parse `app.py` or `app.py:name` into a program."""
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        path, name = text, ""
    return Program(path=path, name=name or None, args=args or {})


def built(plan: Plan) -> Built:
    """Message of a worker about its compiled program, for comparison with others."""
    return Built(plan.workers, fingerprint(plan.graph), json.dumps(outline(plan.graph)), functions_of(plan.graph))


def check_alike(workers: Mapping[Place, Built], advice: str) -> None:
    """Raise FalkirkError, with `advice`, if workers have built different dataflows."""
    (first, before), *others = sorted(workers.items())
    for second, after in others:
        other = after.fingerprint != before.fingerprint
        changes = differences(read_outline(before.outline), read_outline(after.outline)) if other else []
        code = function_changes(before.functions, after.functions, code=True)
        changes += [f"operator {name!r}: {line}" for name, lines in code.items() for line in lines]
        if other or changes:
            raise FalkirkError(
                f"{second} built another dataflow than {first}, so they cannot work together; {advice}:\n  "
                + "\n  ".join(changes)
            )


def packed(task: Any) -> bytes:
    """Serialise a task and its program, for a process started by this one.

    Raises FalkirkError for what cannot travel.
    """
    try:
        data: bytes = cloudpickle.dumps(
            (registered_in("__main__"), task)
        )  # of a script's own classes, which go by value
    except Exception as error:
        raise FalkirkError(
            f"the program cannot be sent to worker processes: {type(error).__name__}: {error}; build it in a function "
            "and give that, or run it from a file: falkirk run app.py"
        ) from error
    return data


def unpacked(data: bytes) -> Any:
    """Deserialise a task; only from the starting process, as it may run any code."""
    registered, task = cloudpickle.loads(data)
    for each in registered:
        register(*each)
    return task
