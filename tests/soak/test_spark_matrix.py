"""Versions of PySpark: one that cannot be installed is named, and is no failure unless it was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import spark_matrix

pytestmark = pytest.mark.check


@pytest.fixture(autouse=True)
def versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that is here, whose tests pass, and one that no pip installs."""
    monkeypatch.setattr(spark_matrix, "FOLDER", tmp_path)
    monkeypatch.setattr(spark_matrix, "VERSIONS", {"9.8": [], "9.9": [str(tmp_path / "absent.whl")]})
    monkeypatch.setattr(spark_matrix, "version", lambda package: "9.8.1")
    monkeypatch.setattr(spark_matrix, "TESTS", [f"{__file__}::test_nothing"])


def test_nothing() -> None:
    """Stands for the tests of a version."""


def test_version_that_cannot_be_installed_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert spark_matrix.main([]) == 0
    said = capfd.readouterr()
    assert "9.9: cannot be installed, and is not tested: " in said.err
    assert "absent.whl" in said.err
    assert "tested: 9.8\nnot tested: 9.9\nfailed: none\n" in said.out


def test_version_that_was_asked_for_and_cannot_be_installed_is_a_failure() -> None:
    assert spark_matrix.main(["9.9"]) == 1


def test_version_whose_tests_fail_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spark_matrix, "TESTS", [f"{__file__}::test_that_is_not_there"])
    assert spark_matrix.main(["9.8"]) == 1
    assert "failed: 9.8" in capfd.readouterr().out
