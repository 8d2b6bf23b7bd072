"""`falkirk whatif`: predicted cost of a failure, from a running job or its store."""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rich.console import Console

from falkirk.tables import print_table
from recovery.layout import Layout
from recovery.metadata import steps
from recovery.store.address import StoreAddress, Where
from recovery.store.interface import NoStore
from runtime.folders.store_folder import StoreFolder
from runtime.page.address import UNIX
from timely.errors import FalkirkError

_SECONDS, _PATIENCE_SECONDS = 20.0, 120.0
"""Timeouts of an answer, and of a second try, in seconds.

The page comes after the job, so on a busy machine it may be late.
"""


class NotRunning(Exception):
    """Raised if nobody answers at the address in a store."""


class Busy(Exception):
    """Raised if a page or a monitor answers, but the job does not."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """Consequences of a failure; `operators` and `answer` as in the page's API.

    See docs/page.md. `running`: the job runs now.
    """

    operators: list[dict[str, Any]]
    answer: dict[str, Any]
    running: bool


def predict(target: Where, failed: Sequence[str]) -> Predicted:
    """Consequences of failures for the job at the address of a store or of a page.

    Raises FalkirkError for a wrong target or name, and when the job cannot answer now.
    """
    if isinstance(target, str) and target.startswith(("http://", UNIX)):
        try:
            return _asked(target, failed)
        except NotRunning as error:
            raise FalkirkError(f"no job answers at {target} ({error})") from error
    address = StoreAddress.of(target)
    try:
        return _asked(StoreFolder(address).page.read_text(), failed)
    except (FileNotFoundError, NotADirectoryError, NotRunning):
        return _recorded(address, failed)


def _asked(address: str, failed: Sequence[str]) -> Predicted:
    job = call(address, "GET", "/api/job")
    answer = call(address, "POST", "/api/whatif", {"failed": list(failed)})
    return Predicted(job["operators"], answer, True)


def call(address: str, method: str, path: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
    """Answer of a page, with one longer second try.

    A machine that is busy gets more time, and a note says so.
    """
    try:
        return call_within(_SECONDS, address, method, path, question)
    except (TimeoutError, Busy):
        print(
            f"note: the job at {_shown(address)} is busy, or its machine, and has not answered yet; it has "
            f"{_PATIENCE_SECONDS:.0f} s more. If its monitor is a process apart and has gone, start it with falkirk monitor "
            "and the store",
            file=sys.stderr,
        )
    deadline = time.monotonic() + _PATIENCE_SECONDS
    try:
        while True:
            try:
                return call_within(deadline - time.monotonic(), address, method, path, question)
            except Busy:
                if (left := deadline - time.monotonic()) <= 1.0:
                    raise
                time.sleep(min(1.0, left / 2))
    except TimeoutError as error:
        raise FalkirkError(
            f"the job at {_shown(address)} gave no answer in {_PATIENCE_SECONDS:.0f} s. If its monitor is a process apart and "
            "has gone, start it with falkirk monitor and the store; else ask again"
        ) from error
    except Busy as error:
        raise FalkirkError(str(error)) from error


def _shown(address: str) -> str:
    """Address without its secret token."""
    return address.partition("?")[0]


def call_within(
    seconds: float, address: str, method: str, path: str, question: dict[str, Any] | None
) -> dict[str, Any]:
    """Answer of the page, or of the running job, at `address`.

    Raises NotRunning, Busy, TimeoutError, and FalkirkError for what it refuses.
    """
    if address.startswith(UNIX):
        return _call_monitor(seconds, address, question)
    headers = {"content-type": "application/json"}
    try:
        url = urlsplit(address)
        place = url.hostname or "localhost", url.port or 80
    except ValueError as error:
        raise FalkirkError(f"{address} is no address of a page ({error}); give http://HOST:PORT/") from error
    connection = http.client.HTTPConnection(*place, timeout=seconds)
    for token in parse_qs(url.query).get("token", []):
        headers["authorization"] = f"Bearer {token}"
    path = url.path.rstrip("/") + path
    try:
        connection.request(method, path, None if question is None else json.dumps(question), headers)
        response = connection.getresponse()
        found: dict[str, Any] = json.loads(response.read())
    except (ConnectionRefusedError, FileNotFoundError) as error:
        raise NotRunning(error.strerror) from error
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FalkirkError(f"the job at {_shown(address)} gave no answer ({error}): ask again") from error
    finally:
        connection.close()
    if response.status != 200:
        text = str(found.get("error", f"the job answered with status {response.status}"))
        raise Busy(text) if response.status == 503 else FalkirkError(text)
    return found


def _call_monitor(seconds: float, address: str, question: dict[str, Any] | None) -> dict[str, Any]:
    from monitor.web.questions import IfPolicies, WhatIf, WrongQuestion
    from runtime.page.caller import Caller

    try:
        with Caller(address.removeprefix(UNIX), seconds) as caller:
            if question is None:
                return {"operators": operators_of(caller.layout)}
            asked = IfPolicies(question["policies"]) if "policies" in question else WhatIf(tuple(question["failed"]))
            found: dict[str, Any] = json.loads(caller.ask(asked))
            return found
    except WrongQuestion as error:
        raise Busy(str(error)) if error.status == 503 else FalkirkError(str(error)) from error
    except TimeoutError:
        raise
    except OSError as error:
        raise NotRunning(error.strerror or str(error)) from error


def _recorded(address: StoreAddress, failed: Sequence[str]) -> Predicted:
    from monitor.explain.what_if import restart, targets
    from monitor.web.questions import answer_as_json
    from runtime.page.recorded import RecordedJob

    try:
        with address.open() as store:
            job = RecordedJob(store)
    except NoStore as error:
        raise FalkirkError(f"{error}, and it is no address of a page (http://...)") from error
    targets(job.layout, failed)  # for what is wrong with the names
    return Predicted(operators_of(job.layout), answer_as_json(restart(job.options)), False)


def operators_of(layout: Layout) -> list[dict[str, Any]]:
    """Operators of a job, as far as an answer is shown with them."""
    return [{"name": info.name, "region": info.region, "policy": info.policy} for info in layout.processors]


def show(predicted: Predicted, failed: Sequence[str], console: Console) -> None:
    """Print predicted consequences, one operator per line."""
    answer = predicted.answer
    if not predicted.running:
        console.print("The job is not running, so nobody has any memory. Run again, it would go on here:")
    elif failed:
        console.print(f"If {' and '.join(failed)} failed now:")
    to: dict[int, dict[int, Any]] = defaultdict(dict)
    for each in answer["processors"]:
        to[each["operator"]][each["worker"]] = None if each["keeps"] else tuple(each["to"])
    rows = [
        (operator["name"], operator["region"] or "", operator["policy"], _places(to[number]))
        for number, operator in enumerate(predicted.operators)
    ]
    print_table(console, ("operator", "region", "policy", "goes back to"), rows)
    for mate in answer.get("mates", ()):
        console.print(f"{mate['text'][0].upper()}{mate['text'][1:]}.")
    for each in answer["workers"]:
        console.print(_sentence(each["worker"], each["to"], each["failed"]))
    kept = sum(bound is None for of in to.values() for bound in of.values())
    if predicted.running:
        console.print(f"{kept:,} of {len(answer['processors']):,} processors keep everything.")
    messages, size = (sum(each[what] for each in answer["resent"]) for what in ("messages", "bytes"))
    console.print(f"{messages:,} messages ({size / 1e6:,.1f} MB) would be sent again.")
    redone = answer["redone"]
    if redone is not None:
        console.print(
            f"At most {redone['records']:,} records in {redone['epochs']:,} epochs would be done again: about "
            f"{redone['seconds']:.1f} s of work."
        )


def _places(bounds: dict[int, Any]) -> str:
    """Positions of all workers, as one if equal.

    >>> _places({0: (3,), 1: (3,)}), _places({0: None, 1: (3, 1)}), _places({0: (-1,)}), _places({0: (3, 7, -2, 5)})
    ('epoch 3', 'worker 0: keeps all; worker 1: (3, 1)', 'its end', '(3, 7) and (4, 5)')
    """
    named = {worker: _place(bound) for worker, bound in sorted(bounds.items())}
    if len(set(named.values())) == 1:
        return next(iter(named.values()))
    return "; ".join(f"worker {worker}: {place}" for worker, place in named.items())


def _sentence(worker: int, least: Sequence[int] | None, failed: bool) -> str:
    """Predicted fate of a worker, as a sentence; `least`: None if it keeps everything.

    >>> _sentence(0, [4535], failed=False), _sentence(1, [4500], failed=True)
    ('Worker 0 keeps everything before epoch 4535.', 'Worker 1 comes back at epoch 4500.')
    """
    if least is None:
        return f"Worker {worker} keeps everything."
    return f"Worker {worker} {'comes back at' if failed else 'keeps everything before'} {_place(tuple(least))}."


def _place(bound: tuple[int, ...] | None) -> str:
    from monitor.explain.why import bound_of

    if bound is None:
        return "keeps all"
    if bound[0] == -1:
        return "its end"
    if not any(bound):
        return "the beginning"
    return f"epoch {bound[0]}" if not any(bound[1:]) else " and ".join(map(str, steps(bound_of(bound))))


def what_if_command(target: str, failed: Sequence[str], as_json: bool) -> int:
    """The whole of `falkirk whatif`; its exit code."""
    predicted = predict(target, failed)
    if as_json:
        print(json.dumps({"running": predicted.running, **predicted.answer}))
    else:
        show(predicted, failed, Console(width=None if os.isatty(1) else 120))
    return 0
