"""Start the Spark that reads and writes Delta and Iceberg. Runs only in `.venv-spark-readers`.

`spark_readers.interpreter()` is the Python to run it with, and `spark_readers.environ()` its environment variables.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Properties = Mapping[str, str]

_FIXED = {
    "spark.sql.extensions": (
        "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    ),
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def sqlite_catalog(file: Path, warehouse: Path | str) -> Properties:
    """Return the properties of an Iceberg catalog in a SQLite file."""
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{file}", "warehouse": str(warehouse)}


def spark_with_tables(
    cores: int, *, catalogs: Mapping[str, Properties] | None = None, settings: Properties | None = None
) -> SparkSession:
    """Start a session in this process, with Delta by path and in `spark_catalog`, and Iceberg by path and in catalogs.

    Args:
        cores: number of concurrent tasks. catalogs: Iceberg's, by name; see `sqlite_catalog`.
        settings: of Spark, which override those set here.
    """
    from pyspark.sql import SparkSession

    jars = sorted((Path(sys.prefix) / "jars").glob("*.jar"))
    assert jars, f"{sys.prefix} has no jars: python -m scripts.spark.spark_readers"
    builder = SparkSession.builder.master(f"local[{cores}]").config(
        "spark.driver.extraClassPath", ":".join(map(str, jars))
    )
    all_settings = dict(_FIXED)
    for name, properties in (catalogs or {}).items():
        prefix = f"spark.sql.catalog.{name}"
        all_settings[prefix] = "org.apache.iceberg.spark.SparkCatalog"
        all_settings |= {f"{prefix}.{key}": value for key, value in properties.items()}
    for key, value in (all_settings | dict(settings or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
