"""Questions of docs/page.md, by the clicks that stand there; those about the past are in `test_moments`."""

from __future__ import annotations

from pathlib import Path

from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.serving import running, when_ready
from tests.monitor.web.test_members import chained
from tests.monitor.web.test_moments import PHASE, hung
from tests.monitor.web.test_page import go, text_of

pytestmark = test_page.pytestmark

ROOT = Path(__file__).resolve().parents[3]


def test_which_operator_is_slow_and_why(tab: Tab, tmp_path: Path) -> None:
    with running(tmp_path, flow=chained) as (url, _):
        job = when_ready(url, "/api/job")
        (chain,) = (each["name"] for each in job["operators"] if each["members"])
        go(tab, url)
        tab.wait(f"{PHASE} === 'running'")
        # The longest bars: Bars is "busy" unless something else was chosen.
        assert tab.run("document.querySelector('#bars').value") == "busy"
        longest = (
            "[...document.querySelectorAll('.node:not(.small)')].map((one) => [one.dataset.name, "
            "Math.max(0, ...[...(one.querySelector('.workers').getAttribute('d') ?? '').matchAll(/v-([0-9.]+)/g)]"
            ".map((found) => Number(found[1])))]).toSorted((a, b) => b[1] - a[1])[0]"
        )
        tab.wait(f"({longest})[1] > 0")
        tab.wait(f"({longest})[0] === {chain!r}")
        tab.click(f".node[data-name='{chain}']")
        tab.wait("document.querySelector('.members tr.slowest')?.dataset.member === 'rest'")
        tab.click("#panel tr.link button")
        tab.wait(f"/Progress frontier .+/.test({text_of('#panel')})")
        assert "Why worker 0 is where it is" in tab.run(text_of("#panel"))
        assert not tab.problems


def test_is_anything_stuck(tab: Tab, tmp_path: Path) -> None:
    with hung(tmp_path) as (url, _, gate):
        go(tab, url)
        tab.wait(f"/^stuck for [0-9]+ s in call-service@[01], waiting for map 'call-service'/.test({PHASE})", 60)
        tab.wait("document.title.startsWith('⚠')")
        tab.click(".node.stuck")
        tab.wait(f"/stuck.*waiting for map 'call-service' .*line/s.test({text_of('#panel')})")
        assert not tab.problems
        gate.touch()
        tab.wait(f"{PHASE} === 'running'", 60)
        tab.wait("!document.querySelector('.node.stuck')")


def test_each_question_of_the_document_names_its_test() -> None:
    section = (ROOT / "docs" / "page.md").read_text().partition("## Five questions\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 5
    for row in rows:
        file, _, name = row.rsplit("`", 2)[1].partition(".")
        assert f"def {name}(" in (ROOT / "tests" / "monitor" / "web" / f"{file}.py").read_text(), row
