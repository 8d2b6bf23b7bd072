"""Cells of the space-time picture (`page/cells.js`), in a real browser, against sets of times that are counted one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.explain.why import plain_bound
from recovery.metadata import Bound, everything, holds, of_steps
from tests.monitor.web import test_page
from tests.monitor.web.browser import Tab
from tests.monitor.web.programs import wide_layout
from tests.monitor.web.serving import serving
from tests.monitor.web.standing import StandingJob
from timely.time import INF, Frontier, Time

pytestmark = test_page.pytestmark

MOST = 9
"""Coordinates of counted times: more than any in a drawn bound, so what is beyond is as the last ones are."""

Cell = tuple[int, int, int | None, bool]

cells = st.one_of(
    st.tuples(st.integers(0, 5), st.integers(1, 4), st.none(), st.just(False)),
    st.tuples(st.integers(0, 5), st.just(1), st.integers(0, 5), st.booleans()),
)
depths = st.integers(1, 3)


@st.composite
def bounds(draw: st.DrawFn, depth: int) -> Bound:
    """Everything, prefixes, and bounds of several epochs in part: no epoch further than the one before it."""
    if draw(st.integers(0, 9)) == 0:
        return everything(depth)
    later = st.tuples(*[st.integers(0, 4) | st.just(INF)] * (depth - 1))
    steps = sorted(draw(st.lists(later, min_size=1, max_size=1 if depth == 1 else 4)), reverse=True)
    first = draw(st.integers(0, 5))
    return of_steps([(first + at, *step) for at, step in enumerate(steps)])


@pytest.fixture(scope="module", autouse=True)
def page(tab: Tab) -> None:
    """The module, in a page."""
    with serving(StandingJob(wide_layout(10)), moves=False) as url:
        test_page.go(tab, url)
        tab.run("import('./page/cells.js').then((all) => { window.cells = all; })")


def call(tab: Tab, name: str, *arguments: object) -> object:
    return tab.run(f"cells.{name}({', '.join(map(json.dumps, arguments))})")


def as_json(cell: Cell) -> dict[str, object]:
    return dict(zip(("epoch", "span", "inner", "rest"), cell))


def times(cell: Cell, depth: int) -> list[Time]:
    """The times of a cell, as far as `MOST`."""
    epoch, span, inner, rest = cell
    epochs = range(epoch, epoch + span)
    if depth == 1:
        return [(each,) for each in epochs]
    inners = range(MOST) if inner is None else range(inner, MOST if rest else inner + 1)
    return [(*each,) for each in product(epochs, inners, *[range(MOST)] * (depth - 2))]


def as_expected(share: object, cell: Cell, depth: int, inside: Sequence[bool]) -> bool:
    """True if a share is 1, 0 or between as all, none or some times are inside; of epochs it is how many are whole."""
    assert isinstance(share, (int, float))
    if all(inside) or not any(inside):
        return share == all(inside)
    if not 0 < share < 1:
        return False
    _, span, inner, _ = cell
    if span == 1 or inner is not None:
        return True
    parts = [inside[at : at + len(inside) // span] for at in range(0, len(inside), len(inside) // span)]
    whole = next(at for at, part in enumerate(parts) if not all(part))
    return share == (whole + 0.5 * any(parts[whole])) / span


@given(depths.flatmap(lambda depth: st.tuples(st.just(depth), bounds(depth), cells)))
def test_a_cell_is_held_as_its_times_are(tab: Tab, drawn: tuple[int, Bound, Cell]) -> None:
    depth, bound, cell = drawn
    inside = [holds(bound, time) for time in times(cell, depth)]
    assert as_expected(call(tab, "held", plain_bound(bound), as_json(cell)), cell, depth, inside)


@given(
    depths.flatmap(
        lambda depth: st.tuples(st.just(depth), st.lists(st.tuples(*[st.integers(0, 5)] * depth), max_size=4), cells)
    )
)
def test_a_cell_is_passed_as_its_times_are(tab: Tab, drawn: tuple[int, list[Time], Cell]) -> None:
    depth, least, cell = drawn
    frontier = Frontier.before(least) if least else Frontier.top(depth)
    inside = [time in frontier for time in times(cell, depth)]
    minimal = [list(time) for time in least]
    assert as_expected(call(tab, "passed", minimal, as_json(cell)), cell, depth, inside)


@given(st.integers(0, 50), st.integers(1, 30), st.sampled_from([1, 2, 5, 10]), st.integers(0, 60), st.integers(0, 9))
def test_columns_divide_all_times_from_the_first_on(
    tab: Tab, start: int, count: int, span: int, unfold: int, first: int
) -> None:
    found = call(tab, "columns", start * span, count, span, unfold, first)
    assert isinstance(found, list)
    assert len(found) >= count
    epoch = start * span
    for before, after in zip([None, *found], found):
        if after["inner"] is None or before is None or before["inner"] is None:
            assert after["epoch"] == epoch
            epoch += after["span"]
        else:
            assert (after["epoch"], after["inner"]) == (before["epoch"], before["inner"] + 1)
    unfolded = [cell for cell in found if cell["inner"] is not None]
    assert [cell["rest"] for cell in unfolded] == ([False] * 31 + [True] if unfolded else [])
    assert bool(unfolded) == any(cell["epoch"] == unfold and span == 1 for cell in found)


@given(st.lists(st.integers(-1, 10**6), max_size=6), st.integers(3, 60))
def test_the_automatic_window_shows_all_frontiers(tab: Tab, epochs: list[int], count: int) -> None:
    found = call(tab, "automatic", epochs, count)
    assert isinstance(found, dict)
    first, span = found["from"], found["span"]
    known = [epoch for epoch in epochs if epoch >= 0] or [0]
    assert first <= min(known)
    assert max(known) + span < first + count * span + span
    assert first % span == 0
    if span > 1:  # no finer one would do: at most five times as many columns as there are epochs to be shown
        assert (max(known) - min(known)) * 5 >= (count - 4) * span


@given(st.lists(st.sampled_from([1.0, 1.0, 0.5, 0.25, 0.0]), max_size=12))
def test_runs_are_the_shares_again(tab: Tab, shares: list[float]) -> None:
    found = call(tab, "runs", shares)
    assert isinstance(found, list)
    again = [0.0] * len(shares)
    for begin, end, share in found:
        assert not any(again[begin:end])
        again[begin:end] = [share] * (end - begin)
    assert again == shares
