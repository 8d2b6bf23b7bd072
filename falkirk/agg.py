"""Importable module `falkirk.agg`."""

import sys

from timely.operators import agg
from timely.operators.agg import *  # noqa: F403  (for type checkers, which do not follow the next line)

sys.modules[__name__] = agg
