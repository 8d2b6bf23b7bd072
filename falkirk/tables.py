"""Terminal tables of any width, without clipped words.

Where not all columns have room, each row is a few lines.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

Cell: TypeAlias = str | Text

_GAP = 2


def print_table(
    console: Console, headers: Sequence[str], rows: Sequence[Sequence[Cell]], right: Collection[str] = ()
) -> None:
    """Print rows of cells; the columns in `right` are aligned right."""
    for part in fitted(headers, rows, console.width, right):
        console.print(part)


def fitted(
    headers: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    width: int,
    right: Collection[str] = (),
    whole: Collection[str] = (),
) -> list[Table | Text]:
    """Table of at most `width` characters, or one cell per line if too narrow.

    The cells of the columns in `whole` are not broken between words either.
    """
    used = [at for at in range(len(headers)) if any(row[at] for row in rows) or not rows]
    least = {header: _length if header in whole else _longest_word for header in headers}
    widths = [max(least[headers[at]](each[at]) for each in (headers, *rows)) for at in used]
    spare = width - sum(widths) - _GAP * (len(used) - 1)
    if spare < 0:
        return _one_below_another(headers, rows)
    wanted = [
        max(_length(each[at]) for each in (headers, *rows)) - least for at, least in zip(used, widths, strict=True)
    ]
    for place, at in enumerate(sorted(range(len(used)), key=wanted.__getitem__)):
        granted = min(wanted[at], spare // (len(used) - place))
        widths[at] += granted
        spare -= granted
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for at, chosen in zip(used, widths, strict=True):  # Rich would make columns narrower than their longest words
        justify = "right" if headers[at] in right else "left"
        table.add_column(Text(headers[at]), justify=justify, width=chosen, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(_text(row[at]) for at in used))
    return [table]


def _one_below_another(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[Table | Text]:
    lines: list[Table | Text] = []
    for row in rows:
        indent = ""
        for header, cell in zip(headers, row, strict=True):
            if cell:
                line = Text.assemble(f"{indent}{header}: ", _text(cell), overflow="fold")
                lines.append(line)
            indent = "  "
    return lines


def short_path(file: str) -> str:
    """The path relative to the working directory, if shorter."""
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive
        return file
    return min(relative, file, key=len)


def _text(cell: Cell) -> Text:
    return Text(cell) if isinstance(cell, str) else cell


def _length(cell: Cell) -> int:
    return cell_len(str(cell))


def _longest_word(cell: Cell) -> int:
    return max(map(cell_len, str(cell).split()), default=0)
