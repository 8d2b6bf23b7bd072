"""`falkirk bench`: Falkirk compared with peers on the same input and output.

`registry` says what is measured, `data` makes the input, `harness` runs every variant in processes of its own, and `command`
shows the figures. The programs themselves are in the repository's folder `bench/programs`: they use the public API only.
"""

from __future__ import annotations

from falkirk.bench.command import bench_command, main
from falkirk.bench.registry import BENCHES

__all__ = ["BENCHES", "bench_command", "main"]
