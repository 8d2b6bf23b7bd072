"""Importable module `falkirk.spark`."""

import sys

from libraries import spark
from libraries.spark import *  # noqa: F403  (for type checkers, which do not follow the next line)

sys.modules[__name__] = spark
