"""`falkirk.agg` as a module that can be imported."""

import sys

from timely.operators import agg
from timely.operators.agg import *  # noqa: F403  (for type checkers, which do not follow the next line)

sys.modules[__name__] = agg
