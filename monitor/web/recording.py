"""Frames of a view, for the history. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from monitor.history.frames import NUMBERS, PHASES, PRESENCES, Bytes, Frame
from monitor.history.scales import COUNT, ENDED, RATE, SHARE, SIZE, UNKNOWN
from monitor.web.view import UNKNOWN as NOT_KNOWN
from monitor.web.view import View
from recovery.protocol import END, ROWS

_AT = {name: number for number, name in enumerate(ROWS)}


def frame_of(view: View, read: int, written: int) -> Frame:
    """Frame of the newest observation.

    `read` and `written` are the job's counters.
    """
    seen, totals, columns = view.observation, view.totals(), view.columns
    assert seen is not None
    finite = [columns.progress[columns.progress < END], columns.low[columns.low < END]]
    epochs = [int(part.max()) for part in finite if part.size]
    newest, slowest = view.newest(), view.slowest()
    top = max([0, *epochs, *(epoch for epoch in (newest, slowest) if epoch is not None)])
    reported = {
        "at": round(seen.at * 1000),
        "generation": seen.generation,
        "phase": PHASES.index(seen.phase) if seen.phase in PHASES else -2,
        "top": top,
        "newest": newest,
        "slowest": slowest,
        "open": totals["open"],
        "low": totals["low"],
        "read": read,
        "written": written,
        "rate": _scaled(totals["rate"], 1),
        "p50": _scaled(totals["p50"], 10_000),
        "p99": _scaled(totals["p99"], 10_000),
        "covered": _scaled(totals["covered"], 1000),
    }
    numbers = tuple(NOT_KNOWN if reported[name] is None else int(reported[name]) for name in NUMBERS)
    workers = view.layout.workers
    operators = np.stack(
        [
            _behind(columns.progress.min(axis=0), top),
            _behind(columns.low.min(axis=0), top),
            RATE.encode(columns.taken.sum(axis=0)),
            SHARE.encode(columns.busy.sum(axis=0) / workers),
            SIZE.encode(columns.table[:, _AT["bytes"]].sum(axis=0)),
        ]
    )
    return Frame(numbers, operators, _workers(view, top))


def _workers(view: View, top: int) -> Bytes:
    seen, columns = view.observation, view.columns
    assert seen is not None
    rows = view.workers()
    reached = np.array([NOT_KNOWN if row[3] is None else END if row[3] == -1 else row[3] for row in rows])
    ages = np.array([0 if row[6] is None else row[6] for row in rows])
    unheard = np.array([row[6] is None for row in rows])
    copies = np.zeros(len(rows) - view.layout.workers)

    def of_places(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values by worker, with zeros for copies."""
        return np.concatenate([values, copies])

    incarnations = np.array([status.incarnation for status in seen.workers]) & 0xFFFF
    return np.stack(
        [
            np.array([_presence(status.presence) for status in seen.workers], np.uint8),
            (incarnations & 0xFF).astype(np.uint8),
            (incarnations >> 8).astype(np.uint8),
            np.minimum([status.failures for status in seen.workers], 255).astype(np.uint8),
            _behind(reached, top),
            RATE.encode(of_places(columns.reads)),
            SHARE.encode(of_places(np.minimum(columns.busy.sum(axis=1), 1.0))),
            np.where(unheard, UNKNOWN, COUNT.encode(ages)).astype(np.uint8),
            *(
                SIZE.encode(of_places(columns.table[:, _AT[name]].sum(axis=1)))
                for name in ("bytes", "logged_bytes", "kept_bytes")
            ),
            COUNT.encode(of_places(columns.table[:, _AT["queued"]].sum(axis=1))),
        ]
    )


def _behind(epochs: npt.NDArray[np.int64], top: int) -> Bytes:
    """Codes of distances before `top`, in epochs."""
    codes = COUNT.encode(np.maximum(top - epochs, 0))
    return np.where(epochs >= END, ENDED, np.where(epochs == NOT_KNOWN, UNKNOWN, codes)).astype(np.uint8)


def _presence(name: str) -> int:
    return PRESENCES.index(name) if name in PRESENCES else UNKNOWN


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else round(value * by)
