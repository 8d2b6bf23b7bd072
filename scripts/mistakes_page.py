"""Makes docs/mistakes.md of the table in tests/mistakes.

scripts/mistakes_page.py             write the page
scripts/mistakes_page.py --print     print it
scripts/mistakes_page.py --accept    write the messages that there are now into the table, then the page; read the changes
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.mistakes.table import APP, PAGE, PRELUDE, Mistake, accepted, read, write

HEAD = """\
# Mistakes and their messages

{count} mistakes, each with the message that Falkirk gives. Search this page for a message to see what leads to it. The tests
run every one of them: `tests/mistakes` is the table, and `scripts/mistakes_page.py` makes this page of it.

In front of each program, and not counted in its lines, stands

```python
{prelude}```

A command line that comes without a program is about this `app.py`:

```python
{app}```
"""


def page(mistakes: list[Mistake]) -> str:
    """The page, as Markdown."""
    parts = [HEAD.format(count=len(mistakes), prelude=PRELUDE, app=APP)]
    for chapter, entries in groupby(mistakes, key=lambda mistake: mistake.chapter):
        parts.append(f"\n## {chapter.partition('-')[2].replace('-', ' ').capitalize()}\n")
        for mistake in entries:
            kind = "console" if mistake.command is not None else "python"
            parts.append(
                f"\n### {mistake.title}\n\n```{kind}\n{mistake.program}\n```\n\n```text\n{mistake.message}\n```\n"
            )
    return "".join(parts)


def main() -> None:
    """Do what the command line says."""
    mistakes = read()
    if "--accept" in sys.argv:
        mistakes = accepted(mistakes)
        write(mistakes)
    text = page(mistakes)
    if "--print" in sys.argv:
        sys.stdout.write(text)
    else:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
