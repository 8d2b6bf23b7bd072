"""Numbers of seeds by profile, for tests that Hypothesis does not drive."""

from __future__ import annotations

import os


def tries(count: int) -> int:
    """Seeds for a test, and twenty times as many in `make soak`."""
    return count * 20 if os.environ.get("FALKIRK_TEST_PROFILE") == "soak" else count
