"""The table of checkpoints and the drawing of one, in a real browser, against the timeline of a real job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.serving import ask, running
from tests.monitor.web.test_page import go, text_of

pytestmark = test_page.pytestmark


def test_a_checkpoint_shows_trigger_size_and_times_of_the_timeline(tab: Tab, tmp_path: Path) -> None:
    with running(tmp_path) as (url, _):
        go(tab, url)
        done = "[...document.querySelectorAll('.cuts tr[data-cut]')].filter((row) => !row.textContent.includes('–'))"
        tab.wait(f"{done}.length >= 2")
        key, shown = tab.run(f"((row) => [row.dataset.cut, row.textContent])({done}[1])")
        group, epoch = (int(each) for each in key.split(".")[:2])
        tab.run(f"document.querySelector('.cuts tr[data-cut=\"{key}\"] button').click()")
        tab.wait(f"{text_of('#panel h2')}.startsWith('Checkpoint at')")
        assert "cut=" in tab.run("location.hash")
        events = [
            each
            for each in ask(url, "/api/timeline")["events"]
            if each.get("group") == group and each.get("epoch") == epoch
        ]
        durable = {each["worker"]: each for each in events if each["kind"] == "durable"}
        (whole,) = (each for each in events if each["kind"] == "checkpoint")
        assert set(durable) == {0, 1}
        # A segment of this job's state is a few KiB; one of a worker without any is a header at least.
        assert all(0 < each["bytes"] < 1 << 20 for each in durable.values())
        every = ask(url, "/api/job")["groups"][group]
        words = f"every {every['every_seconds']:g} s" if every["every_seconds"] else "each epoch"
        assert words in shown or f"every {every['every_epochs']} epoch" in shown, (shown, every)
        bars = tab.run(
            "[...document.querySelectorAll('.gantt rect')].map((bar) => [bar.getAttribute('class'), +bar.dataset.seconds])"
        )
        for kind in ("waited", "made", "written"):
            drawn = sorted(round(length, 5) for name, length in bars if name == kind)
            assert drawn == pytest.approx(sorted(each[kind] for each in durable.values()), abs=2e-5), (
                kind,
                json.dumps(bars),
            )
        assert sum(name == "safe" for name, _ in bars) == 1
        assert max(sum(each[part] for part in ("waited", "made", "written")) for each in durable.values()) <= (
            whole["seconds"] + 0.05
        )
        tab.key("Escape")
        tab.wait("!location.hash.includes('cut=')")
        assert not tab.problems
