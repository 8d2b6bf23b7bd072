"""Errors of Spark and of functions that it runs: those that may pass are known by their class, however they are told."""

from __future__ import annotations

import json
import socket
import subprocess
import traceback
import urllib.error
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from libraries.spark.client.failures import hopeless, own, raised_in
from libraries.spark.client.functions import invoke
from libraries.spark.errors import SparkError, SparkLost

connect = pytest.importorskip("pyspark.errors.exceptions.connect", reason="the extra falkirk[connect] is not installed")


PASSING: list[Callable[[str], BaseException]] = [
    *(FileNotFoundError, TimeoutError, ConnectionResetError, MemoryError, EOFError, PermissionError, OSError),
    *(socket.gaierror, urllib.error.URLError),
    lambda text: urllib.error.HTTPError("http://here", 503, text, None, None),  # type: ignore[arg-type]
]
STAYING: list[Callable[[str], BaseException]] = [
    *(ValueError, KeyError, ZeroDivisionError, TypeError, RuntimeError, AssertionError, zipfile.BadZipFile),
    lambda text: json.JSONDecodeError(text, "", 0),
    lambda text: subprocess.CalledProcessError(1, text),
]
TEXTS = st.one_of(
    st.just(""),
    st.text(max_size=20),
    st.sampled_from(["OSError: no", "no\nOSError: no", "\nKeyError: no", "a: b\nsocket.gaierror", "no\n  File: x"]),
).filter(lambda text: "Traceback" not in text)


def raised(made: Callable[[str], BaseException], text: str, depth: int, within: bool) -> BaseException:
    """An error with a traceback of its own, perhaps of several that came of each other."""

    def deeper(left: int) -> None:
        if left:
            deeper(left - 1)
        raise made(text)

    try:
        try:
            deeper(depth)
        except BaseException as error:
            if not within:
                raise
            other = RuntimeError if isinstance(error, OSError) else FileNotFoundError
            try:
                raise other("before")
            except Exception:
                raise made(text)  # noqa: B904
    except BaseException as error:
        return error
    raise AssertionError


def of_a_task(error: BaseException) -> Exception:
    """The error that Spark makes of one in a Python task."""
    said = "".join(traceback.format_exception(error))
    message = f"Job aborted: [PYTHON_EXCEPTION] An exception was thrown from the Python worker:\n{said}SQLSTATE: 38000"
    made: Exception = connect.PythonException(message=message)
    return made


@given(made=st.sampled_from([*PASSING, *STAYING]), text=TEXTS, depth=st.integers(0, 3), within=st.booleans())
@example(made=MemoryError, text="", depth=0, within=False)
@example(made=socket.gaierror, text="unknown", depth=1, within=False)
@example(made=ValueError, text="\nOSError: it says", depth=0, within=True)
def test_error_in_a_task_may_pass_if_its_class_is_one_of_memory_files_or_the_network(
    made: Callable[[str], BaseException], text: str, depth: int, within: bool
) -> None:
    error = raised(made, text, depth, within)
    assert hopeless(of_a_task(error)) == (not isinstance(error, OSError | MemoryError | EOFError))


@given(made=st.sampled_from([*PASSING, *STAYING]), text=TEXTS)
def test_error_in_a_functions_own_body_may_pass_by_the_same_classes(
    made: Callable[[str], BaseException], text: str
) -> None:
    error = made(text)

    def fails() -> None:
        raise error

    passes = isinstance(error, OSError | MemoryError | EOFError)
    with pytest.raises(type(error) if passes else SparkError) as caught:
        invoke(fails)
    assert hopeless(caught.value) == (not passes)


def test_class_of_an_error_of_an_installed_package_is_known_and_a_program_is_not_run_to_know_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "a_program_of_mine.py").write_text("raise AssertionError('it runs')")
    monkeypatch.syspath_prepend(tmp_path)
    for name, passes in [
        ("grpc._channel._MultiThreadedRendezvous", False),
        ("pyarrow.lib.ArrowInvalid", False),
        ("polars.exceptions.ComputeError", False),
        ("socket.timeout", True),
        ("a_program_of_mine.Mine", False),
        ("none.such.Error", False),
        ("__main__.f.<locals>.Mine", False),
        ("..", False),
    ]:
        error = connect.PythonException(message=f"Traceback (most recent call last):\n  File x\n{name}: no")
        assert hopeless(error) == (not passes), name


def test_errors_of_spark_and_of_falkirk_are_no_functions_own() -> None:
    assert not any(map(own, (SparkLost("gone"), SparkError("no"), connect.PythonException(message="no"), OSError())))
    assert own(KeyError("k"))
    assert raised_in("no traceback at all: OSError: no") == ""
