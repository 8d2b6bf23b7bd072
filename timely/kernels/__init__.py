"""Vectorised kernels: key indexes, grouping and totals over columns. Numba is loaded at the first big batch.

`warm()` loads and compiles ahead of time, for benchmarks and jobs that care about their first second.
"""

from __future__ import annotations

from timely.kernels.tables import warm

__all__ = ["warm"]
