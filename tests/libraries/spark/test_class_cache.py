"""The class cache of Spark's Java: it is used where it is, and whatever is in its place does no harm."""

from __future__ import annotations

import os
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from libraries.spark.host.host import SparkHost
from libraries.spark.setup import class_cache
from libraries.spark.setup.class_cache import cache_file, options_to_use, record
from libraries.spark.setup.java import Java, find_java
from libraries.spark.setup.options import SparkOptions, environment
from tests.libraries.spark.starting import started

OPTIONS = SparkOptions(master="local[1]", memory="512m", nice=0)


@pytest.mark.check
def test_spark_maps_what_was_recorded() -> None:
    """Recorded before, or now: that takes a minute. Java says nothing of a cache, but the system knows what it has mapped."""
    file = record()
    with started(SparkHost(OPTIONS)) as host:
        assert str(file) in Path(f"/proc/{host.pid}/maps").read_text()


def test_what_is_installed_anew_in_the_same_place_is_recorded_anew_and_the_former_file_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java compares sizes and times of what it loads from, and silently does without a file of others."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(class_cache, "_record", lambda java, file: file.touch())
    spark = ModuleSpec("pyspark", None, origin=str(tmp_path / "pyspark" / "__init__.py"))
    monkeypatch.setattr(class_cache, "find_spec", {"pyspark": spark}.get)
    jar, modules = tmp_path / "pyspark" / "jars" / "spark.jar", tmp_path / "java" / "lib" / "modules"
    for file in (jar, modules):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
    java = Java(tmp_path / "java", "17.0.9", "PATH", True)
    other = record(Java(tmp_path / "java", "17.0.10", "PATH", True))
    former = record(java)
    for changed in (jar, modules):
        assert record(java) == former
        os.utime(changed, ns=(1, 1))
        assert options_to_use(java) == ""
        now = record(java)
        assert now != former
        assert set(now.parent.glob("*.classes")) == {now, other}
        former = now


@pytest.mark.soak
def test_spark_starts_with_a_damaged_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = cache_file(find_java())
    file.parent.mkdir(parents=True)
    file.write_bytes(b"no classes")
    with started(SparkHost(OPTIONS)) as host:
        assert str(file) not in Path(f"/proc/{host.pid}/maps").read_text()


def test_each_java_has_a_file_of_its_own_and_what_is_not_there_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    old, new = Java(Path("/a"), "17.0.9", "PATH", True), Java(Path("/a"), "25", "PATH", True)
    assert cache_file(old) != cache_file(new)
    assert options_to_use(old) == options_to_use(new) == ""
    cache_file(old).parent.mkdir(parents=True)
    for java, option in ((old, "-XX:SharedArchiveFile="), (new, "-XX:AOTCache=")):
        cache_file(java).touch()
        assert options_to_use(java).startswith(f"{option}{cache_file(java)} ")


def test_options_of_the_users_come_last_and_win() -> None:
    made = environment(OPTIONS, Path("/java"), {"SPARK_SUBMIT_OPTS": "-XX:+UseSerialGC"}, "-XX:AOTCache=file")
    assert made["SPARK_SUBMIT_OPTS"] == "-XX:AOTCache=file -XX:+UseSerialGC"
    assert "SPARK_SUBMIT_OPTS" not in environment(OPTIONS, Path("/java"), {})
