"""Words in nodes of the drawing: none lies on another, or leaves its node, by boxes measured in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from recovery.layout import Layout
from recovery.metadata import at_epoch
from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.programs import example_layout, wide_layout
from tests.monitor.web.serving import serving
from tests.monitor.web.standing import StandingJob
from tests.monitor.web.test_legible import SIZES, shown

pytestmark = test_page.pytestmark

WRONG = """(() => {
  const wrong = [];
  let seen = 0;
  const place = (node) => node.querySelector('.card').getBoundingClientRect();
  const cards = [...document.querySelectorAll('.node')].map((node) => [node.dataset.name, place(node)]);
  for (const [name, card] of cards)
    for (const [other, box] of cards)
      if (name < other && card.left < box.right && box.left < card.right && card.top < box.bottom && box.top < card.bottom)
        wrong.push([name, 'lies on', other]);
  for (const node of document.querySelectorAll('.node')) {
    const card = place(node);
    const texts = [...node.querySelectorAll(':scope > text')].filter((one) => one.textContent && one.checkVisibility());
    const boxes = texts.map((one) => {
      const box = one.getBoundingClientRect();
      // A line is higher than its letters: by so much two lines may meet.
      const slack = 0.2 * box.height;
      return {words: one.textContent, left: box.left, right: box.right, top: box.top + slack, bottom: box.bottom - slack};
    });
    boxes.forEach((box, at) => {
      seen += 1;
      if (box.left < card.left || box.right > card.right || box.top < card.top - 1 || box.bottom > card.bottom + 1)
        wrong.push([node.dataset.name, box.words, 'leaves its node', box, card]);
      for (const other of boxes.slice(at + 1))
        if (box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom)
          wrong.push([node.dataset.name, box.words, 'lies on', other.words]);
    });
    const name = node.querySelector('.name').textContent;
    if (name.endsWith('…') && !node.querySelector('title').textContent.startsWith(node.dataset.name))
      wrong.push([node.dataset.name, 'is short, and nowhere said in full']);
  }
  return [wrong, seen];
})()"""


def named(layout: Layout, names: tuple[str, ...]) -> Layout:
    """The same with other names: long, wide, narrow ones."""
    processors = tuple(replace(info, name=f"{names[p % len(names)]}-{p}") for p, info in enumerate(layout.processors))
    return replace(layout, processors=processors)


LAYOUTS = {
    "mixed_policies": lambda: example_layout("mixed_policies"),
    "long names": lambda: named(
        example_layout("mixed_policies"),
        ("WWWW MMMM WWWW MMMM", "illi-illi-illi-illi-illi-illi", "ÄÖ", "ohne Ende und Anfang"),
    ),
    "221 operators": lambda: wide_layout(221, workers=4),
}
EPOCHS = (7, 1_234, 98_765_432)


@pytest.fixture(scope="module", params=LAYOUTS)
def drawn(request: pytest.FixtureRequest) -> Iterator[tuple[StandingJob, str]]:
    job = StandingJob(LAYOUTS[request.param]())
    job.epoch = 98_765_432
    job.tell(epoch=98_765_000, inner=12_345, busy=5)
    for p in range(0, len(job.layout.processors)):
        job._tables[:, 0, p] = EPOCHS[p % len(EPOCHS)]
        job._tables[:, 1, p] = (0, 3, 123_456)[p // 3 % 3]
    job._tell()
    job.low = tuple(
        tuple(at_epoch(EPOCHS[p % 3] - p % 7, info.depth) for p, info in enumerate(job.layout.processors))
        for _ in range(job.layout.workers)
    )
    with serving(job, moves=False) as url:
        yield job, url


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", SIZES)
def test_no_words_of_a_node_lie_on_others_or_leave_it(
    tab: Tab, drawn: tuple[StandingJob, str], width: int, dark: bool
) -> None:
    _, url = drawn
    shown(tab, url, width, dark)
    for keys in ("", "f", "+++", "------", "----"):
        for key in keys:
            tab.key(key, key)
        wrong, seen = tab.run(WRONG)
        assert not wrong, (keys, wrong)
        assert seen or keys.startswith("-")
