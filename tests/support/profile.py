"""Numbers of seeds and cases by profile, for tests that Hypothesis does not drive."""

from __future__ import annotations

import os

PROFILE = os.environ.get("FALKIRK_TEST_PROFILE")


def tries(count: int) -> int:
    """Seeds for a test, and twenty times as many in `make soak`."""
    return effort(count, count, 20 * count)


def effort(test: int, check: int, soak: int) -> int:
    """The number for `make test`, `make check` and `make soak`; by hand that of `make test`."""
    return {"check": check, "soak": soak}.get(PROFILE or "", test)
