"""Lindi: queries over each time's data, on records (`Query`) or columns (`Table`).

Nothing is kept between times. So a query costs nothing to recover: it can go back to any complete time, and no
checkpoint holds anything of it. Any of its steps can be asked to log its output (`logged`): a failure downstream
then repeats nothing upstream of it. (Lindi is the library of LINQ's operators for Naiad: Murray et al., *Naiad*,
SOSP 2013, section 4.1.)

>>> import falkirk
>>> from falkirk import lindi
>>> flow = falkirk.Dataflow("lengths")
>>> words = lindi.Query(flow.source("words", falkirk.Iterable(["a", "wheel", "b", "boat"], epoch_every=2)))
>>> longest = words.group_by(len).count().capture("counts")
>>> with falkirk.Session(flow) as session:
...     session.run()
...     sorted(session.captured(longest))
[((0,), [(1, 1), (5, 1)]), ((1,), [(1, 1), (4, 1)])]
"""

from __future__ import annotations

from libraries.lindi.columns import Table
from libraries.lindi.records import Groups, Query

__all__ = ["Groups", "Query", "Table"]
