"""`falkirk demo`: the flights example of the repository."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from timely.errors import FalkirkError

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "flights_demo.py"


def run_demo(workers: int, quiet: bool, kill: bool = True, example: Path = EXAMPLE) -> int:
    """Run `main(workers=, quiet=, kill=)` of the example; its exit code."""
    if not example.is_file():
        raise FalkirkError(
            f"the demo is the program examples/flights_demo.py of Falkirk's repository, and there is no {example}; "
            "the installed package does not hold it: get the repository, and run `make demo` in it"
        )
    spec = importlib.util.spec_from_file_location(example.stem, example)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[example.stem] = module
    sys.path.insert(0, str(example.parent))
    spec.loader.exec_module(module)
    return int(module.main(workers=workers, quiet=quiet, kill=kill))
