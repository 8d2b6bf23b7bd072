"""The space-time view in a real browser: what it says, how it is reached, and a rollback step by step."""

from __future__ import annotations

import json
from typing import Any

from monitor.web.fold import fold, group_tree
from monitor.web.spacetime import row_places
from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.programs import example_layout, wide_layout
from tests.monitor.web.serving import ask, serving
from tests.monitor.web.standing import StandingJob
from tests.monitor.web.test_page import go, text_of
from tests.monitor.web.test_readable import FAINT
from tests.monitor.web.test_rollback_card import PRESSED, standing
from tests.monitor.web.test_spacetime import with_checkpoints

pytestmark = test_page.pytestmark

ROWS = (
    "[...document.querySelectorAll('#spacetime tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
)
PIXELS = """(() => {
  const canvas = document.querySelector('#spacetime canvas');
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const found = {};
  for (let at = 0; at < data.length; at += 4) {
    const key = '#' + [...data.slice(at, at + 3)].map((each) => each.toString(16).padStart(2, '0')).join('');
    found[key] = (found[key] ?? 0) + 1;
  }
  return found;
})()"""


def painted(tab: Tab, *names: str) -> list[bool]:
    """Whether the picture has something of each colour, by its name in page.css."""
    found = tab.run(PIXELS)
    style = "getComputedStyle(document.documentElement).getPropertyValue"
    return [tab.run(f"{style}('--{name}').trim()") in found for name in names]


def test_it_says_what_the_interface_says_and_is_reached_by_a_key(tab: Tab) -> None:
    layout = example_layout("flights")
    job = with_checkpoints(layout)
    job.tell(epoch=9)
    job.options.raise_watermarks()
    with serving(job, moves=False) as url:
        go(tab, url)
        tab.key("s", "s")
        tab.wait("location.hash.includes('view=spacetime')")
        tab.wait(f"{ROWS}.length")
        rows = tab.run(ROWS)
        answer = ask(url, "/api/spacetime")
        expected = []
        for node, _, label, _, _, lanes in answer["rows"]:
            for worker, index in enumerate(lanes if node >= 0 else ()):
                case = answer["cases"][index]
                kept, gone = (", ".join(str(at[0]) for at in case.get(name, [])) for name in ("kept", "gone"))
                progress, restored, low = (str(case[name][0]) for name in ("progress", "restored", "low"))
                expected.append([label, str(worker), progress, restored, low, kept, "–", gone])
        assert len(rows) > 10
        assert rows == expected[: len(rows)]
        assert painted(tab, "done", "safe", "accent", "focus") == [True] * 4
        tab.key("s", "s")
        tab.wait("!location.hash.includes('view=')")
        assert tab.run("getComputedStyle(document.querySelector('#graph')).display") != "none"
        assert not tab.problems


def test_a_cell_asks_why_its_epoch_is_not_safe(tab: Tab) -> None:
    layout = example_layout("flights")
    job = with_checkpoints(layout)
    with serving(job, moves=False) as url:
        go(tab, url, "#view=spacetime")
        tab.wait(f"{ROWS}.length")
        tab.run("document.querySelector('#spacetime canvas').focus()")
        for _ in range(2):
            tab.key("ArrowDown")
        for _ in range(3):
            tab.key("ArrowRight")
        reported = tab.run(text_of("#spacetime .said"))
        first = row_places(layout, fold(layout, group_tree(layout)))[1].label
        assert reported.startswith(f"{first} on worker 0, epoch 3: complete; kept") or reported.startswith(
            f"{first} on worker 0, epoch 3: complete, "
        )
        tab.key("Enter")
        tab.wait("location.hash.includes('epoch=3')")
        assert f"sel={first}" in tab.run("location.hash")
        tab.wait(f"{text_of('#panel')}.includes('epoch 3')")
        p = next(p for p, info in enumerate(layout.processors) if info.name == first)
        why = ask(url, f"/api/why/{p}/0?epoch=3")["rollback"]
        tab.wait(f"{text_of('#panel')}.includes({json.dumps(why['text'])})")
        assert ask(url, f"/api/why/{p}/0?epoch=0")["rollback"]["next"] in ([1], None)
        assert not tab.problems


def test_a_rollback_is_played_with_a_stop_at_each_phase(tab: Tab) -> None:
    job = standing()
    with serving(job, moves=False) as url:
        go(tab, url, "#view=spacetime&card=2")
        tab.wait(f"{ROWS}.length && document.querySelector('[data-keep=play]')")
        sources = [info.name for info in job.layout.processors if info.role == "source"]
        rows = tab.run(ROWS)
        assert rows[0] == [sources[0], "0", "5", "2", "decide"]
        assert rows[1] == [sources[0], "1", "5", "2", "failed, decide"]
        assert ["arrived", "0", "5", "keeps all", "decide"] in rows
        shown: dict[str, Any] = {}
        tab.click("[data-keep=play]")
        for step in ("failure", "drain", "decide", "restore", "catch up"):
            tab.wait(f"{PRESSED} === {json.dumps(step)}", 10)
            tab.wait(f"{ROWS}[0].at(-1) === {json.dumps(step)}", 10)
        tab.wait(f"{text_of('[data-keep=play]')} === 'Play'", 10)
        try:
            tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
            go(tab, url, "#view=spacetime&card=2")
            tab.wait(f"{ROWS}.length")
            tab.run(
                "window.frames = 0; const own = requestAnimationFrame; requestAnimationFrame = (f) => (frames++, own(f))"
            )
            for number, name in ((1, "failure"), (4, "restore"), (5, "catch up")):
                tab.click(f".steps .step:nth-child({number})")
                tab.wait(f"{PRESSED} === {json.dumps(name)}")
                shown[name] = tab.run(PIXELS)
            assert tab.run("frames") == 0
        finally:
            tab.call("Emulation.setEmulatedMedia", features=[])
        danger = tab.run("getComputedStyle(document.documentElement).getPropertyValue('--danger').trim()")
        restorable = tab.run("getComputedStyle(document.documentElement).getPropertyValue('--restorable').trim()")
        assert danger in shown["failure"]
        assert restorable not in shown["failure"]
        assert restorable in shown["restore"]
        assert not tab.problems


def test_updates_replace_no_nodes(tab: Tab) -> None:
    with serving(StandingJob(wide_layout(40))) as url:
        for view in ("#view=spacetime", "#"):
            go(tab, url, view)
            tab.wait("document.querySelector('#totals dd') && document.querySelectorAll('#time path').length > 8")
            tab.wait(f"{ROWS}.length" if len(view) > 1 else "true")
            tab.run(
                "window.gone = []; window.watch = new MutationObserver((all) => all.forEach((one) => "
                "one.removedNodes.forEach((node) => gone.push(node.nodeName + ' of ' + one.target.nodeName))));"
                "for (const id of ['time', 'stage', 'top'])"
                " watch.observe(document.getElementById(id), {childList: true, subtree: true})"
            )
            before = tab.run(text_of("#totals div:nth-child(3) dd"))
            tab.wait(f"{text_of('#totals div:nth-child(3) dd')} !== {json.dumps(before)}")
            tab.wait("new Promise((done) => setTimeout(() => done(true), 2500))")
            assert [each for each in tab.run("gone") if not each.startswith("#text")] == []


def test_words_are_readable_with_table_and_legend_in_both_themes(tab: Tab) -> None:
    try:
        for dark in (False, True):
            tab.size(1440, 900, dark=dark)
            with serving(with_checkpoints(example_layout("flights")), moves=False) as url:
                go(tab, url, "#view=spacetime")
                tab.wait(f"{ROWS}.length")
                tab.run("document.querySelector('#spacetime .glossary').open = true")
                tab.click("#spacetime .bar button:nth-of-type(5)")
                tab.wait("!document.querySelector('#spacetime .times').classList.contains('unseen')")
                found: Any = tab.run(FAINT)
            assert not found[0], found[0]
            ratio = tab.run(
                """(() => {
                  const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
                  const light = (text) => {
                    const [r, g, b] = [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16) / 255);
                    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
                  };
                  const names = ['--accent', '--danger', '--focus', '--text'];
                  const ground = light(value('--surface'));
                  const pairs = names.map((name) => [light(value(name)), ground]);
                  return pairs.map(([a, b]) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
                })()"""
            )
            assert min(ratio) >= 4.5, ratio
    finally:
        tab.size(1500, 950)
