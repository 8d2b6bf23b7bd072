"""What tests of the page in a browser share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.monitor.web.browser import Tab, browser, find_browser


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    found = find_browser()
    assert found is not None
    with browser(found) as opened:
        opened.size(1500, 950)
        yield opened
