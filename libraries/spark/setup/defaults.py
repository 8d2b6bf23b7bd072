"""User's settings in `spark-defaults.conf`, and their validity for a job's Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_WHERE = (
    *("spark.master", "spark.app.name", "spark.submit.", "spark.scheduler.mode", "spark.local.dir"),
    *("spark.driver.host", "spark.driver.bindAddress"),
)
"""Settings of location, for Spark and its files; determined by the job."""

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
"""Settings with effect on answers and types; ignored, for portable results."""

LEVEL = "spark.log.level"
_OF_LOG4J = (".properties", ".xml", ".yaml", ".yml", ".json", ".jsn")


def read_defaults(folder: str | None) -> dict[str, str]:
    """Settings in a folder's `spark-defaults.conf`; none without the file."""
    try:
        lines = [] if folder is None else (Path(folder) / "spark-defaults.conf").read_text().splitlines()
    except OSError:
        return {}
    pairs = [re.split(r"[\s=]+", line.strip(), maxsplit=1) for line in lines if line.strip().startswith("spark.")]
    return dict(pair for pair in pairs if len(pair) == 2)


def holds(name: str) -> bool:
    """True for a setting with effect on a job's Spark.

    >>> holds("spark.sql.catalog.lake"), holds("spark.sql.session.timeZone"), holds("spark.master")
    (True, False, False)
    """
    return not name.startswith((*_WHERE, *_ANSWERS))


def logs_by_itself(settings: Mapping[str, str], folder: str | None) -> bool:
    """True if the user has configured Spark's logging.

    That may be by settings, or by a file of log4j's in the folder of the settings.
    """
    options = settings.get("spark.driver.extraJavaOptions", "")
    files = Path(folder).glob("log4j2*.*") if folder is not None else ()
    return LEVEL in settings or "log4j" in options or any(file.suffix in _OF_LOG4J for file in files)
