"""Write the table of words in docs/architecture.md from the page's glossary.json.

scripts/words_table.py             write the table
scripts/words_table.py --print     print the document with it
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = ROOT / "monitor" / "web" / "page" / "glossary.json"
DOCUMENT = ROOT / "docs" / "architecture.md"
HEAD = "## Words\n"


def document() -> str:
    """Architecture with the table of words at its end."""
    rows = [f"| {each['word']} | {each['meaning']} |" for each in json.loads(WORDS.read_text())]
    before = DOCUMENT.read_text().partition(HEAD)[0]
    return before + HEAD + "\n" + "\n".join(["| word | meaning |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    if "--print" in sys.argv:
        print(document(), end="")
    else:
        DOCUMENT.write_text(document())
