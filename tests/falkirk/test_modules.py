"""The libraries are modules of `falkirk`, in every way in which Python imports a module."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import falkirk.differential as given
    from falkirk.differential import Collection
    from falkirk.graph import reach

    made: Collection = reach(given.from_changes(...), given.from_changes(...))  # type: ignore[arg-type]

PROGRAM = """
import sys
import falkirk
assert not {"numpy", "pyarrow", "polars"} & sys.modules.keys(), "nothing heavy is loaded before it is used"
import falkirk.differential, falkirk.graph as graph
from falkirk.lindi import Query
from falkirk import agg, differential, lindi, spark
import falkirk.agg, falkirk.lindi, falkirk.spark
assert graph is falkirk.graph and falkirk.differential is differential
for name in ("agg", "differential", "graph", "lindi", "spark"):
    assert getattr(falkirk, name) is sys.modules["falkirk." + name], name
assert falkirk.differential.Collection is differential.Collection and lindi.Query is Query
"""


def test_libraries_can_be_imported_as_modules() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
