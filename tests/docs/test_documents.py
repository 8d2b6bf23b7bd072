"""The code blocks of the documents run, in order, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

RUNNER = """
import json, sys
blocks = json.load(open(sys.argv[1]))
names = {"__name__": "__main__"}
import contextlib, io
for code in blocks:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "tutorial.py", "exec"), names)
    print(json.dumps(out.getvalue()))
"""


def blocks_of(page: Path) -> list[tuple[str, str | None]]:
    """The Python blocks of a page, each with the text block that shows its output, if one follows."""
    found = BLOCK.findall(page.read_text())
    result: list[tuple[str, str | None]] = []
    for language, text in found:
        if language == "python":
            result.append((text, None))
        elif language == "text" and result:
            result[-1] = (result[-1][0], text)
    return result


@pytest.mark.parametrize(
    "page",
    [
        *(
            "docs/tutorial.md",
            "docs/columns.md",
            "docs/cookbook.md",
            "docs/engine.md",
            "docs/recovery.md",
            "docs/theory.md",
            "docs/guarantees.md",
            "docs/differential.md",
            "docs/lindi.md",
            "docs/tables.md",
            "README.md",
        ),
        *(
            pytest.param(f"docs/{page}.md", marks=[pytest.mark.spark, pytest.mark.check])
            for page in ("spark", "spark_regions", "spark_table", "spark_source")
        ),
        pytest.param("docs/spark_engine.md", marks=[pytest.mark.spark, pytest.mark.soak]),
    ],
)
def test_code_blocks_run_and_print_what_the_page_says(page: str, tmp_path: Path) -> None:
    blocks = blocks_of(ROOT / page)
    assert blocks
    import json

    script, code = tmp_path / "tutorial.py", tmp_path / "blocks.json"
    script.write_text(RUNNER)
    sources = [block for block, _ in blocks]
    if page == "README.md":
        import polars as pl

        (tmp_path / "words").mkdir()
        pl.DataFrame({"word": ["wheel", "boat", "wheel"]}).write_parquet(tmp_path / "words" / "a.parquet")
    code.write_text(json.dumps(sources))
    done = subprocess.run(
        [sys.executable, str(script), str(code)], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    outputs = [json.loads(line) for line in done.stdout.splitlines()]
    for output, (source, expected) in zip(outputs, blocks, strict=True):
        if expected is not None:
            assert output == expected, source
