"""Stores of tests: what lives beside them, and a kind of store that only tests have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recovery.store.address import GROUP, StoreAddress, Where
from runtime.folders.store_folder import StoreFolder

_KIND = "tests.support.elsewhere:opened"


def beside(store: Where) -> StoreFolder:
    """Files of this host that belong to a store."""
    return StoreFolder(StoreAddress.of(store))


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str = _KIND) -> None:
    """Install the scheme `elsewhere`, as a distribution would, for this process and its children."""
    about = folder / "distributions" / "elsewhere-1.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\nelsewhere = {kind}\n")
    monkeypatch.syspath_prepend(str(about.parent))
    monkeypatch.setenv("PYTHONPATH", str(about.parent), prepend=os.pathsep)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "states"))
