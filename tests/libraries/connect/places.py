"""Places that cannot be written to, for tests."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def read_only_folder() -> Iterator[Path]:
    """A folder that this process may read but not write; root steps down to an ordinary user meanwhile."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chmod(folder, 0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            if user == 0:
                os.seteuid(0)
            os.chmod(folder, 0o755)


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes meanwhile, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
