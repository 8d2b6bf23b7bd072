"""The files of a table, as they are listed for a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from libraries.spark.errors import SparkError
from libraries.spark.files.pinned import check, local_path, pin


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def names_of(path: object) -> list[tuple[str, str]]:
    return [(os.path.basename(file.base), os.path.basename(file.path)) for file in pin("t", str(path))]


def test_folder_a_file_and_a_pattern_have_the_files_that_spark_would_read(tmp_path: Path) -> None:
    make(
        tmp_path,
        *("t/a.parquet", "t/day=1/b.parquet", "t/_day=2/c.parquet", "t/_temporary/x", "t/.hidden/y", "t/.z.crc"),
    )
    make(tmp_path, *("t/_SUCCESS", "t/d.parquet._COPYING_", "u/a.parquet"))
    inside = [("t", "c.parquet"), ("t", "a.parquet"), ("t", "b.parquet")]
    assert names_of(tmp_path / "t") == inside
    assert names_of(f"file://{tmp_path}/t") == inside
    assert names_of(tmp_path / "t" / "a.parquet") == [("t", "a.parquet")]
    assert names_of(tmp_path / "*") == [*inside, ("u", "a.parquet")]
    assert names_of(tmp_path / "{u,none}" / "?.parquet") == [("u", "a.parquet")]
    (tmp_path / "link").symlink_to(tmp_path / "u")
    assert names_of(tmp_path / "link") == [("link", "a.parquet")]


def test_path_without_files_and_one_that_cannot_be_listed_are_refused(tmp_path: Path) -> None:
    make(tmp_path, "t/_SUCCESS")
    for path in ("t", "none", "*.parquet"):
        with pytest.raises(SparkError, match=f"table 't': there are no files at {tmp_path}/"):
            pin("t", str(tmp_path / path))
    with pytest.raises(SparkError, match=r"files at s3a: cannot be listed here; give a function.*'s3a://b/t'"):
        local_path("s3a://b/t")
    assert local_path("C:/here") == "C:/here"


def test_file_that_is_gone_or_another_by_now_is_named(tmp_path: Path) -> None:
    make(tmp_path, "a", "b")
    files = pin("t", str(tmp_path))
    make(tmp_path, "c")
    check("t", files)  # what comes does not matter
    os.utime(tmp_path / "b", ns=(1, 1))
    with pytest.raises(SparkError, match=f"table 't': the run was to read {tmp_path}/b, which has changed"):
        check("t", files)
    (tmp_path / "a").write_bytes(b"longer")
    with pytest.raises(SparkError, match=r"/a, which has changed.*had 1 bytes, and has 6"):
        check("t", files)
    (tmp_path / "a").unlink()
    with pytest.raises(SparkError, match="/a, which is gone"):
        check("t", files)
