"""The settings of the user's own Spark, in `spark-defaults.conf`: which of them hold for a job's Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_WHERE = (
    *("spark.master", "spark.app.name", "spark.submit.", "spark.scheduler.mode", "spark.local.dir"),
    *("spark.driver.host", "spark.driver.bindAddress"),
)
"""Where it runs, and where its files are: a job says that."""

_ANSWERS = (
    *("spark.sql.ansi.", "spark.sql.legacy.", "spark.sql.session.timeZone", "spark.sql.session.collation."),
    *(
        "spark.sql.timestampType",
        "spark.sql.caseSensitive",
        "spark.sql.storeAssignmentPolicy",
        "spark.sql.mapKeyDedupPolicy",
    ),
    *("spark.sql.decimalOperations.", "spark.sql.datetime.java8API.", "spark.sql.readSideCharPadding"),
    *(
        "spark.sql.charAsVarchar",
        "spark.sql.preserveCharVarcharTypeInfo",
        "spark.sql.groupBy",
        "spark.sql.orderByOrdinal",
    ),
    *("spark.sql.files.ignore", "spark.sql.sources.partitionColumnTypeInference.", "spark.sql.pyspark."),
    *("spark.sql.execution.arrow.", "spark.sql.execution.pandas.", "spark.sql.execution.pythonUD"),
    *("spark.sql.parquet.outputTimestampType", "spark.sql.parquet.binaryAsString", "spark.sql.parquet.int96"),
    *("spark.sql.parquet.datetimeRebase", "spark.sql.parquet.inferTimestampNTZ", "spark.sql.parquet.writeLegacyFormat"),
    *("spark.sql.parquet.fieldId.", "spark.sql.parquet.mergeSchema", "spark.sql.parquet.respectSummaryFiles"),
)
"""Settings on which answers and types rest: they are the same on all machines, so that a program gives the same."""

LEVEL = "spark.log.level"
_OF_LOG4J = (".properties", ".xml", ".yaml", ".yml", ".json", ".jsn")


def read_defaults(folder: str | None) -> dict[str, str]:
    """The settings in `spark-defaults.conf` of a folder; none if it has no such file."""
    try:
        lines = [] if folder is None else (Path(folder) / "spark-defaults.conf").read_text().splitlines()
    except OSError:
        return {}
    pairs = [re.split(r"[\s=]+", line.strip(), maxsplit=1) for line in lines if line.strip().startswith("spark.")]
    return dict(pair for pair in pairs if len(pair) == 2)


def holds(name: str) -> bool:
    """True for a setting that holds for a job's Spark.

    >>> holds("spark.sql.catalog.lake"), holds("spark.sql.session.timeZone"), holds("spark.master")
    (True, False, False)
    """
    return not name.startswith((*_WHERE, *_ANSWERS))


def logs_by_itself(settings: Mapping[str, str], folder: str | None) -> bool:
    """True if the user has said how Spark logs: by its settings, or in a file of log4j's in the folder of its settings."""
    options = settings.get("spark.driver.extraJavaOptions", "")
    files = Path(folder).glob("log4j2*.*") if folder is not None else ()
    return LEVEL in settings or "log4j" in options or any(file.suffix in _OF_LOG4J for file in files)
