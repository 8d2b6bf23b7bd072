"""A query of Nexmark over 119 epochs, in processor seconds, by those of Polars for the whole input at once.

`--part` names the query, `--size` is the number of events. The input is in memory, so that only the query is measured. Each has
one thread, both in one process, by turns, and their answers must be equal.
"""

from __future__ import annotations

from collections.abc import Callable

from auctions import Frames, measured
from common import arguments
from polars import DataFrame
from queries import QUERIES, Streams

import falkirk


def main() -> None:
    args = arguments()

    def run(frames: Frames) -> Callable[[], list[DataFrame]]:
        flow = falkirk.Dataflow(args.part)
        QUERIES[args.part](Streams(flow, lambda kind: falkirk.Batches(frames[kind]))).capture("out")
        result = falkirk.run(flow)
        captured = result.captured("out")
        return lambda: [DataFrame(batch) for _, batch in captured]

    measured(args.part, args.size, run)


if __name__ == "__main__":
    main()
