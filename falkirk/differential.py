"""`falkirk.differential` as a module that can be imported."""

import sys

from libraries import differential
from libraries.differential import *  # noqa: F403  (for type checkers, which do not follow the next line)

sys.modules[__name__] = differential
