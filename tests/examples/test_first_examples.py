"""The small examples, run as users run them, against what others compute."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import polars as pl
import pytest

from runtime.program import Program
from runtime.run import run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DATA = EXAMPLES / "data"


def lines_of(capfd: pytest.CaptureFixture[str], example: str, workers: int, **args: Any) -> list[str]:
    """The output of the example, without the epochs in front, in the order in which it comes."""
    run(Program(path=str(EXAMPLES / example), args=args), workers)
    return [line.split(": ", 1)[1] for line in capfd.readouterr().out.splitlines()]


def counts_of(lines: list[str]) -> dict[str, int]:
    """Words with the last of their counts."""
    pairs = (line.split() for line in lines)
    return {word: int(n.replace(",", "")) for n, word in pairs}


def words_of(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w[\w'’]*", text.lower()))


@pytest.mark.parametrize("workers", [1, 2])
def test_wordcount_counts_the_words_of_the_poems(capfd: pytest.CaptureFixture[str], workers: int) -> None:
    expected = words_of("".join(file.read_text() for file in DATA.glob("*.txt")))
    assert counts_of(lines_of(capfd, "wordcount.py", workers, least=1)) == expected


def test_wordcount_shows_only_frequent_words_unless_told_otherwise(capfd: pytest.CaptureFixture[str]) -> None:
    shown = counts_of(lines_of(capfd, "wordcount.py", 1))
    assert 2 <= len(shown) <= 20
    assert min(shown.values()) >= 8


def test_wordcount_goes_on_from_epoch_to_epoch_in_a_parquet_file(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    poems = [line for file in sorted(DATA.glob("*.txt")) for line in file.read_text().splitlines()]
    texts = pl.DataFrame({"number": range(len(poems)), "text": poems})
    texts.write_parquet(tmp_path / "poems.parquet", row_group_size=10)
    shown = lines_of(capfd, "wordcount.py", 1, path=str(tmp_path / "poems.parquet"), column="text", least=1)
    assert counts_of(shown) == words_of("\n".join(poems))
    assert len(shown) > len(counts_of(shown)), "a word of several epochs comes out once in each"


@pytest.mark.parametrize("workers", [1, 2])
def test_loop_finds_the_longest_walk(capfd: pytest.CaptureFixture[str], workers: int) -> None:
    def walk(n: int) -> int:
        steps = 0
        while n != 1:
            n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
        return steps

    best = max(range(1, 2001), key=walk)
    (line,) = lines_of(capfd, "loop.py", workers, upto=2000)
    assert line == f"{best:,} takes {walk(best)} steps to come down to 1"
    result = run(Program(path=str(EXAMPLES / "loop.py"), args={"upto": 300}))
    steps = dict(pair for _, batch in result.captured("lengths") for pair in batch)
    assert steps == {n: walk(n) for n in range(1, 301)}


def check_ranks(shown: list[str], graph: nx.Graph[str]) -> None:
    expected = nx.pagerank(graph, tol=1e-12, max_iter=1000)
    ranks = {node: float(rank) for rank, node in (line.split(" ", 1) for line in shown)}
    assert list(ranks.values()) == sorted(ranks.values(), reverse=True)
    assert ranks == pytest.approx(expected, abs=6e-7), "they are printed with six digits"


@pytest.mark.parametrize("workers", [1, 2])
def test_pagerank_agrees_with_networkx(capfd: pytest.CaptureFixture[str], workers: int) -> None:
    shown = lines_of(capfd, "pagerank.py", workers)
    check_ranks(shown, nx.florentine_families_graph())
    assert shown[0].endswith("Medici")


def test_pagerank_ranks_the_graph_of_a_file(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    karate = nx.Graph((f"member-{a}", f"member-{b}") for a, b in nx.karate_club_graph().edges)
    file = tmp_path / "karate.csv"
    file.write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in karate.edges))
    check_ranks(lines_of(capfd, "pagerank.py", 1, path=str(file)), karate)


def test_first_examples_are_short() -> None:
    for name in ("wordcount.py", "loop.py", "pagerank.py"):
        assert len((EXAMPLES / name).read_text().splitlines()) < 80
