"""Importable module `falkirk.lindi`."""

import sys

from libraries import lindi
from libraries.lindi import *  # noqa: F403  (for type checkers, which do not follow the next line)

sys.modules[__name__] = lindi
