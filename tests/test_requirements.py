"""The locked requirements: complete, exact, checked by hash, and without any address."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SUPPORTED = ["3.11", "3.12", "3.13", "3.14"]


def entries(lock: Path) -> list[tuple[Requirement, frozenset[str]]]:
    """Each locked requirement with the hashes that its files may have."""
    lines = lock.read_text().replace("\\\n", " ").splitlines()
    parsed = []
    for line in lines:
        requirement, *hashes = line.split(" --hash=")
        parsed.append((Requirement(requirement.strip()), frozenset(each.strip() for each in hashes)))
    return parsed


def locked_versions(lock: Path, python: str) -> dict[str, str]:
    """Name to version for one Python version on this platform."""
    environment = {key: str(value) for key, value in default_environment().items()}
    environment.update(python_version=python, python_full_version=f"{python}.0")
    return {
        canonicalize_name(requirement.name): next(iter(requirement.specifier)).version
        for requirement, _ in entries(lock)
        if requirement.marker is None or requirement.marker.evaluate(environment)
    }


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_lock_pins_exact_versions_by_hash_and_holds_no_address(lock: Path) -> None:
    assert entries(lock), f"{lock.name} is empty"
    for requirement, hashes in entries(lock):
        operators = [specifier.operator for specifier in requirement.specifier]
        assert operators == ["=="], f"{lock.name}: {requirement} is not pinned to one version"
        assert requirement.url is None, f"{lock.name}: {requirement.name} names an address"
        assert hashes, f"{lock.name}: {requirement} has no hash"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), f"{lock.name}: {requirement}"
    assert not re.search(r"://|--(extra-)?index-url|--find-links", lock.read_text())


@pytest.mark.parametrize("python", SUPPORTED)
@pytest.mark.parametrize(
    ("lock", "extras"), [("run", ["demo"]), ("dev", ["demo", "connect", "delta", "iceberg", "dev", "docs"])]
)
def test_lock_satisfies_every_declared_dependency(lock: str, extras: list[str], python: str) -> None:
    versions = locked_versions(ROOT / f"requirements/{lock}.txt", python)
    declared = [*PROJECT["dependencies"]]
    for extra in extras:
        declared += PROJECT["optional-dependencies"][extra]
    for requirement in map(Requirement, declared):
        version = versions.get(canonicalize_name(requirement.name))
        assert version, f"{requirement} is not in requirements/{lock}.txt: run `make lock`"
        assert requirement.specifier.contains(version), f"{requirement}, but {version} is locked: run `make lock`"


def test_tests_run_against_the_versions_that_users_get() -> None:
    """Tests may need on more systems what users need on some."""
    users, tests = (
        {
            f"{requirement.name}{requirement.specifier}": (hashes, str(requirement.marker or ""))
            for requirement, hashes in entries(ROOT / f"requirements/{name}.txt")
        }
        for name in ("run", "dev")
    )
    for name, (hashes, marker) in users.items():
        assert name in tests
        assert tests[name][0] == hashes
        assert tests[name][1] == marker or tests[name][1].startswith(f"{marker} or ")
