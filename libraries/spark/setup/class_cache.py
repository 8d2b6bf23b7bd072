"""Class cache of Spark's Java: recorded once, it halves the time of later starts.

Java spends most of a start of Spark on reading, checking and interpreting the same ten thousand classes. `record` has Spark
start once, run a little of everything, and write down what Java has made of them (`python -m
libraries.spark.setup.class_cache` in a process of its own). Each Spark that is started later with the same Java and the same
pyspark maps that file. Java sees for itself that a file fits (the same jars, unchanged, in the same order), and does without
one that does not. So the file's name tells what Java compares: a pyspark that is installed anew, in the same place, gets a new
file for the former one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from libraries.spark.errors import SparkError
from libraries.spark.setup.java import Java, find_java, home_for_spark
from libraries.spark.setup.options import SparkOptions, environment, open_session, settings
from runtime.folders.scratch import Scratch

_AHEAD_OF_TIME = 25
"""First Java version with ahead-of-time caches, with method profiles, in one run."""

_SECONDS = 600.0


def cache_file(java: Java) -> Path:
    """Cache file for this Java and pyspark, in the user's cache; it may not exist."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "falkirk" / "java"
    return folder / f"{_hash(_place(java))}-{_hash(_installed(java))}.classes"


def options_to_use(java: Java) -> str:
    """Java options to use the recorded cache; empty if there is none."""
    file = cache_file(java)
    if not file.is_file() or " " in str(file):
        return ""
    if _major(java) >= _AHEAD_OF_TIME:
        return f"-XX:AOTCache={file} -Xlog:aot=off -Xlog:cds=off"
    return f"-XX:SharedArchiveFile={file} -Xlog:cds=off -Xlog:cds+dynamic=off"


def record(java: Java | None = None) -> Path:
    """Record Spark's classes for this user unless done already; the cache file.

    Takes about a minute, and 200 MB of disk.

    Raises:
        SparkError: if there is no Java, or Spark does not start on it.
        OSError: if the user's cache cannot be written to.
    """
    java = java or find_java()
    file = cache_file(java)
    file.parent.mkdir(parents=True, exist_ok=True)
    place = _hash(_place(java))
    with (file.parent / f"{place}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who comes second finds it done
        if not file.is_file():
            _record(java, file)
            for other in set(file.parent.glob(f"{place}*.classes")) - {file}:
                other.unlink()  # of what was installed here before
    return file


def _record(java: Java, file: Path) -> None:
    option = "AOTCacheOutput" if _major(java) >= _AHEAD_OF_TIME else "ArchiveClassesAtExit"
    made = file.with_suffix(".made")
    made.unlink(missing_ok=True)
    scratch = Scratch("classes")
    try:
        variables = environment(SparkOptions(), home_for_spark(java, scratch.path))
        variables["SPARK_SUBMIT_OPTS"] = f"-XX:{option}={made}"
        log = scratch.path / "log"
        with log.open("wb") as output:
            done = subprocess.run(
                [sys.executable, "-m", __spec__.name, str(scratch.path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=variables,
                timeout=_SECONDS,
                check=False,
            )
        if done.returncode != 0 or not made.is_file():
            last = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
            raise SparkError(f"Java did not record its classes. It printed:\n{last}")
        made.replace(file)
    except subprocess.TimeoutExpired as error:
        raise SparkError(f"Java did not record its classes within {_SECONDS:g} s") from error
    finally:
        made.unlink(missing_ok=True)
        scratch.close()


def _place(java: Java) -> object:
    spark = find_spec("pyspark")
    return str(java.home.resolve()), java.version, spark.origin if spark is not None else ""


def _installed(java: Java) -> object:
    """Name, size and change time of each file compared by Java with its recorded ones."""
    spark = find_spec("pyspark")
    jars = Path(spark.origin).parent / "jars" if spark is not None and spark.origin else None
    files = [java.home / "lib" / "modules", *(jars.iterdir() if jars is not None and jars.is_dir() else ())]
    seen = [(file.name, file.stat()) for file in files if file.is_file()]
    return sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in seen)


def _hash(identity: object) -> str:
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]


def _major(java: Java) -> int:
    return int(java.version.split(".")[0].split("-")[0])


def _exercise(folder: Path) -> None:
    """Start Spark, load commonly used classes, and let Java exit, to write the cache."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    spark = open_session(settings(SparkOptions(memory="1g"), folder))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    rows = pa.table({"key": [str(n % 7) for n in range(100)], "value": list(range(100))})
    source = folder / "in"
    source.mkdir()
    pq.write_table(rows, source / "rows.parquet")
    frame = spark.read.parquet(str(source))
    frame.createOrReplaceTempView("input")
    for number, query in enumerate(
        (
            "select key, count(*) as n, sum(value) as total, avg(value) as mean from input group by key",
            "select key, percentile_disc(0.5) within group (order by value) as median from input group by key",
            "select a.key, b.value, row_number() over (partition by a.key order by b.value) as n from input a join input b "
            "on a.value = b.value where a.value % 2 = 0 order by n desc limit 10",
        )
    ):
        spark.sql(query).write.parquet(str(folder / f"out-{number}"))
    spark.sql("select key, max(value) as most from input group by key").toArrow()
    frame.mapInArrow(lambda batches: batches, frame.schema).write.parquet(str(folder / "out-python"))
    stream = spark.readStream.schema(frame.schema).parquet(str(source))
    query_of_stream = (
        stream.writeStream.trigger(availableNow=True)
        .foreachBatch(lambda batch, number: batch.write.parquet(str(folder / f"stream-{number}")))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    query_of_stream.awaitTermination()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    spark.stop()
    java.stdin.close()  # Spark's gateway ends with it
    java.wait()


if __name__ == "__main__":
    _exercise(Path(sys.argv[1]))
