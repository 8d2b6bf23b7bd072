"""Vectorised kernels: key indexes, grouping and totals over columns.

Numba is loaded at the first big batch.

`warm()` loads and compiles ahead of time, for benchmarks and jobs that care about their first second.

Enters: columns. Leaves: dense ids, totals, hashes.
"""

from __future__ import annotations

from timely.data.kernels.tables import warm_tables


def warm() -> None:
    """Load Numba, and compile every loop or load it from the cache."""
    from timely.data.kernels.crc import warm_hashes

    warm_tables()
    warm_hashes()


__all__ = ["warm"]
