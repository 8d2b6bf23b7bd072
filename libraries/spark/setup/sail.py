"""Search for Sail: a Python with it, and its version."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

from libraries.spark.versions import SAIL_BEFORE

VARIABLE = "FALKIRK_SAIL"
"""Environment variable for the Python to run Sail in, if different from this one."""

_ASKS = "import importlib.metadata as m, pyspark; print(m.version('pysail'), pyspark.__version__)"
_SECONDS = 20.0


def sail_python() -> str | None:
    """Python to run Sail in; None if there is none."""
    chosen = os.environ.get(VARIABLE)
    return chosen or (sys.executable if find_spec("pysail") is not None else None)


def look_for_sail() -> tuple[bool | None, str]:
    """True if Sail works, None if absent and not requested; and a description."""
    python = sail_python()
    if python is None:
        return None, "not installed, and only needed for SparkOptions(sail=True): pip install 'falkirk[sail]'"
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            [python, "-c", _ASKS], capture_output=True, text=True, timeout=_SECONDS, check=False, env=variables
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, f"{VARIABLE}={python}: {error}"
    if done.returncode:
        return False, f"{python}: {(done.stderr.strip().splitlines() or ['it fails'])[-1]}"
    sail, pyspark = done.stdout.split()
    text = f"{sail}, with PySpark {pyspark} ({python})"
    return tuple(map(int, pyspark.split(".")[:2])) < SAIL_BEFORE, text
