"""Importable module `falkirk.differential`."""

import sys

from libraries import differential
from libraries.differential import *  # noqa: F403  (for type checkers, which do not follow the next line)

sys.modules[__name__] = differential
