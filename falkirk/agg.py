"""Importable module `falkirk.agg`."""

import sys

from libraries.columns import agg
from libraries.columns.agg import *  # noqa: F403  (for type checkers, which do not follow the next line)

sys.modules[__name__] = agg
