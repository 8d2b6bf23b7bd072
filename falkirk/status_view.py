"""`falkirk status`: verdict on the job of a store, and exit code for scripts.

0 it runs, starts, rolls back, was stopped on purpose, or has ended; 10 it is stuck; 11 it has failed; 12 it was killed; 13
there is no job; 14 its processes are there, and do not answer.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from monitor.coordination.supervision import MateView
from monitor.explain.exposure import Danger
from monitor.explain.mates import mate_text
from recovery.store.address import StoreAddress, Where
from recovery.store.identity import store_id
from recovery.store.interface import NoStore, OpenStore, StoreError
from runtime.folders.store_folder import StoreFolder
from runtime.page.address import door_of
from runtime.page.caller import Caller
from runtime.page.recorded import judge_of, read_saved
from timely.errors import FalkirkError

STUCK, FAILED, KILLED, NO_JOB, NO_ANSWER = 10, 11, 12, 13, 14

_CODES = {"stuck": STUCK, "failed": FAILED, "killed": KILLED}
_SECONDS = 20.0
"""Time limit of a monitor's answer, in seconds."""


@dataclass(frozen=True, slots=True)
class Status:
    """Status of a job, with an exit code.

    `page_answer` is the verdict as /api/verdict gives it, None where there is none.
    """

    text: str
    code: int
    page_answer: dict[str, Any] | None = None


def status_of(where: Where) -> Status:
    """Status of the job of a store; FalkirkError if that cannot be opened."""
    address = StoreAddress.of(where)
    try:
        opened = address.open()
    except NoStore as error:
        return Status(f"no job: {error}", NO_JOB)
    with opened as store:
        try:
            page_answer = _asked(store, StoreFolder(address))
        except FalkirkError as error:
            return Status(
                f"no answer: the processes of the job are there, and its monitor does not answer ({error})", NO_ANSWER
            )
        return _recorded(store, address) if page_answer is None else _status(page_answer)


def _recorded(store: OpenStore, address: StoreAddress) -> Status:
    """Status of a job without a running process, from its store."""
    identity = store_id(store)
    saved = read_saved(store, identity) if identity is not None else None
    if saved is None or saved.layout is None:
        return Status(f"no job: in the store {address} none has ever run", NO_JOB)
    return _status(judge_of(saved).verdict(False, time.time()).as_json())


def status_command(where: Where, as_json: bool) -> int:
    """Print the status; the exit code."""
    found = status_of(where)
    if as_json:
        print(json.dumps({"text": found.text, "exit_code": found.code, **(found.page_answer or {})}))
    else:
        print(found.text)
    return found.code


def _status(page_answer: dict[str, Any]) -> Status:
    since = (
        datetime.fromtimestamp(page_answer["since"]).astimezone().isoformat(" ", "seconds")
        if page_answer["since"]
        else ""
    )
    text = (
        page_answer["text"]
        if page_answer["state"] == "stuck" or not since
        else f"{page_answer['text']} (since {since})"
    )
    known = [each for each in page_answer.get("exposure", ()) if each["who"] >= 0 and each["records"] is not None]
    if known:
        worst = max(known, key=lambda each: each["records"])
        text += "\n" + Danger(*(worst[name] for name in ("who", "records", "redo", "restore"))).text
    for mate in page_answer.get("mates", ()):
        text += "\n" + mate_text(MateView(**mate))
    return Status(text, _CODES.get(page_answer["state"], 0), page_answer)


def _asked(store: OpenStore, folder: StoreFolder) -> dict[str, Any] | None:
    """Verdict of a running job's monitor; None without a running job.

    Raises FalkirkError if it does not answer.
    """
    if not _is_there(store):
        return None
    try:
        with Caller(door_of(folder), _SECONDS) as caller:
            return caller.observe().told()
    except TimeoutError:
        raise FalkirkError(f"nothing came in {_SECONDS:.0f} s: ask again") from None
    except OSError:
        return None


def _is_there(store: OpenStore) -> bool:
    """False if the store's last process is surely gone.

    Nothing is locked: a job may be about to.
    """
    try:
        user = store.last_user()
        if user is None or user[1] != socket.gethostname():
            return user is not None
        os.kill(user[0], 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError, StoreError):
        return True
    return True
