"""The parts of an epoch of `latency`, with one worker: the median of each, in microseconds.

Not a benchmark of its own but the profile of one: the parts are timed separately, so their sum is a little above the whole.
"""

from __future__ import annotations

import time
from itertools import pairwise

from common import arguments, percentile, report
from latency import build

from falkirk import Session


def main() -> None:
    args = arguments()
    parts: dict[str, list[float]] = {"send": [], "feed": [], "advance": [], "run": [], "probe": []}
    clock = time.perf_counter
    with Session(build()) as session:
        records, counted = session.input("records"), session.probe("counted")
        worker = session.worker
        for epoch in range(args.size):
            marks = [clock()]
            records.send([epoch % 64])
            marks.append(clock())
            records.flush()  # key_by, ones and count handle the record; count asks for a notification
            marks.append(clock())
            records.advance_to(epoch + 1)
            marks.append(clock())
            worker.run()  # the notification is complete: count updates its state and sends the total
            marks.append(clock())
            assert counted.done(epoch)
            marks.append(clock())
            for part, (begin, end) in zip(parts, pairwise(marks), strict=True):
                parts[part].append((end - begin) * 1e6)
        records.close()
        session.run()
    for part, times in parts.items():
        report(percentile(sorted(times), 0.5), system=f"falkirk_{part}", unit="us")


if __name__ == "__main__":
    main()
