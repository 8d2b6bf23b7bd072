"""Tests of one group run in one process: what they share, a Spark or a browser, is made once."""

from __future__ import annotations

import pytest

GROUP = "those that look at groups"
pytestmark = pytest.mark.xdist_group(GROUP)


def test_a_group_is_known_to_who_distributes_tests(request: pytest.FixtureRequest) -> None:
    distributed = getattr(request.config.option, "loadgroup", False)
    assert request.node.nodeid.endswith(f"@{GROUP}") == distributed
