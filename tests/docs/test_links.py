"""Each relative link of a document leads to a file, and to a heading that is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "formal/*.md", "bench/*.md", ".github/**/*.md")
    for path in ROOT.glob(pattern)
)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)")


def prose(path: Path) -> str:
    """The text of a page without its blocks of code and without code in lines."""
    return re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[\[\]()]", "", code[0]), FENCE.sub("", path.read_text()))


def slug(heading: str) -> str:
    """The anchor of a heading, as repositories' sites and the built site make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", plain.replace("\\", "")).replace(" ", "-")


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of the headings of a page."""
    return frozenset(slug(each) for each in re.findall(r"^#+ +(.*?) *$", FENCE.sub("", path.read_text()), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(prose(page)):
        if re.match(r"\w+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert not broken, f"{page.name} links to what is not there: {broken}"


def test_pages_and_links_are_found() -> None:
    assert len(PAGES) > 150
    assert sum(len(LINK.findall(prose(page))) for page in PAGES) > 300


def test_slugs() -> None:
    assert slug("What an operator repeats over") == "what-an-operator-repeats-over"
    assert slug("Ξ, from `a` to [b](c.md)") == "ξ-from-a-to-b"
