"""Explained words, the tour and the help, in a real browser; their texts are those of the documents."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.metadata import at_epoch
from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.serving import serving
from tests.monitor.web.test_page import go, text_of
from tests.monitor.web.test_rollback_card import standing

pytestmark = test_page.pytestmark

ROOT = Path(__file__).resolve().parents[3]
WORDS = json.loads((ROOT / "monitor" / "web" / "page" / "glossary.json").read_text())
PANELS = {"": "", "processor": "#sel=by-carrier&worker=0", "what if": "#ask=worker%3A1", "card": "#card=2"}

BARE = r"""(() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const within = text.parentElement;
    if (within.closest('.term, svg, script, noscript, [hidden], #helping, #meaning, td, button, canvas')) continue;
    if (/[Ξφ⊤]|[NMD]\u0304|F\*\(p\)|(?<![\p{L}\p{N}])W(?![\p{L}\p{N}])/u.test(text.data)) found.push(text.data);
  }
  return found;
})()"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    job = standing()
    layout = job.layout
    for flat in range(job.options.topology.count):
        info = job.options.topology.info(flat)
        if info.chain:
            ports = job.options.topology.outgoing[flat // layout.workers]
            bound = at_epoch(5, info.depth)
            job.options.chains[flat] = [(bound, tuple((0,) if layout.edges[e].logged else bound for e in ports))]
    with serving(job, moves=False) as made:
        yield made


def test_the_table_of_words_is_made_of_the_glossary() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "words_table.py"), "--print"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert made == (ROOT / "docs" / "architecture.md").read_text(), "run scripts/words_table.py"
    names = [name for word in WORDS for name in word["names"]]
    assert len(names) == len(set(names))
    asked = ["Ξ", "φ", "W", "cut", "group", "generation", "frontier", "M̄", "N̄", "D̄", "⊤", "bound", "epoch", "exposure"]
    assert set(asked) <= set(names)
    assert all(word["plain"] for word in WORDS if word["names"])


@pytest.mark.parametrize("panel", PANELS)
def test_every_symbol_of_a_panel_is_explained(tab: Tab, url: str, panel: str) -> None:
    go(tab, url, PANELS[panel])
    tab.wait("document.querySelector('#panel .term')")
    if panel == "processor":
        tab.wait("[...document.querySelectorAll('#panel th')].some((one) => one.textContent === 'φ')")
        shown = tab.run("[...document.querySelectorAll('#panel th .term')].map((one) => one.textContent)")
        assert {"f", "N̄", "M̄", "D̄", "φ"} <= set(shown)
    assert tab.run(BARE) == []


def test_a_word_is_opened_and_closed_by_keys(tab: Tab, url: str) -> None:
    go(tab, url, "#sel=by-carrier&worker=0")
    tab.wait("[...document.querySelectorAll('#panel th .term')].some((one) => one.textContent === 'φ')")
    tab.run("[...document.querySelectorAll('#panel th .term')].find((one) => one.textContent === 'φ').focus()")
    tab.key("Enter", "\r")
    tab.wait("document.querySelector('#meaning').matches(':popover-open')")
    phi = next(word for word in WORDS if "φ" in word["names"])
    reported = tab.run(text_of("#meaning"))
    assert phi["plain"] in reported
    assert phi["meaning"] in reported
    tab.key("Escape")
    tab.wait("!document.querySelector('#meaning').matches(':popover-open')")
    assert "sel=by-carrier" in tab.run("location.hash"), "Escape has closed the word only"
    assert tab.run("document.activeElement.textContent") == "φ"
    assert not tab.problems


def test_the_tour_is_offered_once_goes_by_keys_and_starts_again_from_the_help(tab: Tab, url: str) -> None:
    go(tab, url)
    tab.run("localStorage.clear()")
    go(tab, url, "#sel=by-carrier")
    assert not tab.run("Boolean(document.querySelector('.offer'))"), "who was sent somewhere is not offered it"
    go(tab, url)
    tab.wait("document.querySelector('.offer button')")
    assert tab.run("document.querySelector('#tour').hidden"), "nothing lies on the page by itself"
    tab.click(".offer button")
    tab.wait("!document.querySelector('#tour').hidden")
    steps = int(tab.run(text_of("#tour .soft")).split()[-1])
    assert 5 <= steps <= 7
    titles = set()
    for _ in range(steps):
        titles.add(tab.run(text_of("#tour-title")))
        place = tab.run(
            "(() => { const a = document.querySelector('#tour').getBoundingClientRect();"
            "return a.left >= 0 && a.top >= 0 && a.right <= innerWidth && a.bottom <= innerHeight })()"
        )
        assert place
        tab.key("Enter", "\r")
    assert len(titles) == steps
    tab.wait("document.querySelector('#tour').hidden")
    go(tab, url)
    tab.wait("document.querySelector('#panel h2')")
    assert not tab.run("Boolean(document.querySelector('.offer'))"), "it is remembered"
    tab.key("?", "?")
    tab.wait("document.querySelector('#helping').open")
    assert tab.run("document.querySelectorAll('#helping dl.words dt').length") >= 25
    tab.click("#start-tour")
    tab.wait("!document.querySelector('#tour').hidden")
    tab.key("ArrowRight")
    tab.wait(f"{text_of('#tour .soft')} === 'Step 2 of {steps}'")
    tab.key("Escape")
    tab.wait("document.querySelector('#tour').hidden")
    assert not tab.problems
