"""Errors of a job, of its timeline: equal ones are one, with their number. Pure.

Errors of the program, deaths of workers and failures of the job; records that went to a stream of dead letters are none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from monitor.coordination.supervision import TimelineEvent
from recovery.layout import Layout

MOST_ERRORS = 200
"""Most different errors in an answer, the newest."""

_KINDS = frozenset({"error", "failure", "failed"})


def errors_of(events: Iterable[TimelineEvent], layout: Layout) -> list[dict[str, Any]]:
    """Different errors, the newest first.

    Each has its `kind`, `text` and `trace`, the `operator` by its name with its `site`, the user's `line`, `workers`, `count`,
    and times of the `first` and the `last`.
    """
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    ended = ""
    for event in events:
        if event.kind not in _KINDS:
            continue
        each = _error(event, layout)
        if event.kind == "error":
            ended = each["text"]
        elif event.kind == "failed" and each["text"] == ended:
            continue  # the job has ended with the error before
        key = (each["kind"], each["operator"], each["line"], each["text"])
        known = found.setdefault(key, each)
        if known is not each:
            known["count"] += 1
            known["last"], known["trace"] = event.at, each["trace"] or known["trace"]
            known["workers"] = sorted({*known["workers"], *each["workers"]})
    return sorted(found.values(), key=lambda error: -error["last"])[:MOST_ERRORS]


def _error(event: TimelineEvent, layout: Layout) -> dict[str, Any]:
    data = event.data
    processor = data.get("processor", -1)
    info = layout.processors[processor] if 0 <= processor < len(layout.processors) else None
    trace = str(data.get("trace") or data.get("output") or "")
    text = str(data.get("text") or data.get("reason") or "")
    return {
        "kind": event.kind,
        "text": text if event.kind != "failure" else f"worker {data.get('worker')} failed: {without_process(text)}",
        "trace": trace,
        "operator": "" if info is None else info.name,
        "site": "" if info is None else str(info.site),
        "line": users_line(trace, "" if info is None else str(info.site)),
        "workers": [data["worker"]] if isinstance(data.get("worker"), int) else [],
        "count": 1,
        "first": event.at,
        "last": event.at,
    }


def without_process(reason: str) -> str:
    """Reason of a death without the number of the process, which is another one each time.

    >>> without_process("process 123 was killed by SIGKILL"), without_process("gave no sign of life")
    ('was killed by SIGKILL', 'gave no sign of life')
    """
    words = reason.split(" ", 2)
    return words[2] if len(words) == 3 and words[0] == "process" and words[1].isdecimal() else reason


def users_line(trace: str, site: str) -> str:
    """Innermost line of a traceback in the file of the operator's site, else its innermost line at all; empty for none.

    >>> trace = 'File "/a/app.py", line 3, in f\\n  g()\\nFile "/b/lib.py", line 7, in g\\n  1 / 0\\nZeroDivisionError: ...'
    >>> users_line(trace, "/a/app.py:9"), users_line(trace, ""), users_line("", "")
    ('/a/app.py:3', '/b/lib.py:7', '')
    """
    file = site.rpartition(":")[0]
    lines = []
    for each in trace.splitlines():
        head, _, rest = each.strip().partition('", line ')
        number = rest.partition(",")[0].partition(" ")[0]
        if head.startswith('File "') and number.isdecimal():
            lines.append((head[6:], number))
    users = [line for line in lines if file and (line[0] == file or line[0].endswith(f"/{file}"))] or lines
    return ":".join(users[-1]) if users else ""
