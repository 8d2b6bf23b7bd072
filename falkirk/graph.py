"""Importable module `falkirk.graph`."""

import sys

from libraries import graph
from libraries.graph import *  # noqa: F403  (for type checkers, which do not follow the next line)

sys.modules[__name__] = graph
