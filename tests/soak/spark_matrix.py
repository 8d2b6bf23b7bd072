"""Regions with each version of PySpark, and on Sail: `python -m tests.soak.spark_matrix [VERSION...]`.

Each but the version that is installed here has a virtual environment of its own in `build/spark_matrix`, which has all other
packages of this one. To bring a PySpark
takes 430 MB, and Sail 63 MB; what is there is used again. One that cannot be installed, as it is not published yet, or nothing
is in reach, is named at the end, and is no failure, unless it was asked for by name or is all that there was.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "spark_matrix"

VERSIONS: dict[str, list[str]] = {
    "4.0": ["pyspark==4.0.*"],
    "4.1": ["pyspark==4.1.*"],
    "4.2": ["pyspark==4.2.*"],
    "4.3": ["pyspark==4.3.*"],
    "sail": ["pysail==0.7.*", "pyspark-client==4.2.*"],
}
"""The packages that an environment has of its own."""

TESTS = [
    "tests/libraries/spark/test_versions.py",
    "tests/libraries/spark/test_references.py",
    "tests/libraries/spark/test_reads.py",
    *(
        f"tests/libraries/spark/test_spark.py::{name}"
        for name in (
            "test_rows_grouped_on_spark_come_back_at_their_epochs_as_polars_groups_them",
            "test_sql_over_two_streams_and_tables_that_are_there_already",
            "test_function_that_raises_in_a_task_is_called_once_for_it",
            "test_python_process_that_dies_costs_an_attempt_at_the_run",
            "test_child_that_is_killed_is_replaced_while_java_lives_on",
        )
    ),
    "tests/libraries/spark/test_connect.py::test_types_and_tables_go_there_and_back",
]
ON_SAIL = ["tests/libraries/spark/test_sail.py"]


class NotInstalledError(Exception):
    """Says which packages pip did not install, and pip's last line."""


def made(name: str) -> Path:
    """The Python of an environment, which is made unless it is there.

    Raises:
        NotInstalledError: as pip does not find its packages, or does not reach them.
    """
    if version("pyspark").startswith(f"{name}."):
        return Path(sys.executable)
    folder = FOLDER / name
    python = folder / "bin" / "python"
    done = folder / "done"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        # Sail brings packages that are there already; PySpark needs a py4j of its own.
        more = ["--no-deps"] if name == "sail" else []
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *more, *VERSIONS[name]]
        done_by_pip = subprocess.run(pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done_by_pip.returncode != 0:
            said = done_by_pip.stdout.strip().splitlines() or ["pip says nothing"]
            raise NotInstalledError(f"{', '.join(VERSIONS[name])}: {said[-1]}")
        places = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})["purelib"]
        Path(places, "zz_all_others.pth").write_text(sysconfig.get_paths()["purelib"])
        done.touch()
    return python


def passes(name: str) -> bool:
    """Run the tests in an environment; Sail's client is that of this one."""
    own = made(name)
    variables = {"FALKIRK_TEST_PROFILE": "check", **os.environ, "PYTHONPATH": str(ROOT)}
    python, tests = (sys.executable, ON_SAIL) if name == "sail" else (str(own), TESTS)
    if name == "sail":
        variables["FALKIRK_SAIL"] = str(own)
    began = time.monotonic()
    command = [python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    code = subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
    print(f"{name}: {'all pass' if code == 0 else 'some fail'}, {time.monotonic() - began:.0f} s", flush=True)
    return code == 0


def main(names: list[str]) -> int:
    """Test the versions of these names, or all."""
    unknown = [name for name in names if name not in VERSIONS]
    if unknown:
        print(f"there is no {unknown[0]!r}: {', '.join(VERSIONS)}", file=sys.stderr)
        return 2
    failed, absent = list[str](), list[str]()
    for name in names or VERSIONS:
        try:
            if not passes(name):
                failed.append(name)
        except NotInstalledError as error:
            absent.append(name)
            print(f"{name}: cannot be installed, and is not tested: {error}", file=sys.stderr, flush=True)
    tested = [name for name in names or VERSIONS if name not in absent]
    for what, of in (("tested", tested), ("not tested", absent), ("failed", failed)):
        print(f"{what}: {', '.join(of) or 'none'}")
    return 1 if failed or not tested or (names and absent) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
