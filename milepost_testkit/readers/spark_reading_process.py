"""The process in which Spark reads tables, without Milepost: in the environment of `scripts/spark/spark_readers.py`.

Requests and answers are those of `reading_process.py`; a request may have a statement, `sql`, in the place of a read.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from scripts.spark.spark_tables import spark_with_tables, sqlite_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Tables are small here: compiling costs more than it gives.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
NOTHING = pa.table({})
CATALOG = "org.apache.iceberg.spark.SparkCatalog"


class Sessions:
    """One session for each catalog: a catalog is asked for by its own name, which others may have too."""

    def __init__(self) -> None:
        self._first = spark_with_tables(2, settings=SETTINGS)
        self._of_catalogs: dict[tuple[str, str], SparkSession] = {}

    def of(self, location: Any) -> SparkSession:
        if not isinstance(location, dict):
            return self._first
        name, file = location["catalog"], location["file"]
        if (name, file) not in self._of_catalogs:
            session = self._first.newSession()
            prefix = f"spark.sql.catalog.{name}"
            session.conf.set(prefix, CATALOG)
            # A reader that remembers a table for half a minute is no witness of what is published.
            properties = {**sqlite_catalog(Path(file), Path(file).parent), "cache-enabled": "false"}
            for key, value in properties.items():
                session.conf.set(f"{prefix}.{key}", value)
            self._of_catalogs[name, file] = session
        return self._of_catalogs[name, file]


def answered(sessions: Sessions, request: dict[str, Any]) -> pa.Table:
    location = request["location"]
    session = sessions.of(location)
    if "sql" in request:
        session.sql(request["sql"]).collect()
        return NOTHING
    if isinstance(location, dict):
        frame = session.table(f"{location['catalog']}.{location['name']}")
    else:
        frame = session.read.format(request["format"]).load(location)
    if request["where"] is not None:
        column, operator, value = request["where"]
        text = value.replace("\\", "\\\\").replace("'", "\\'")
        frame = frame.where(f"`{column}` {operator} '{text}'")
    return frame.toArrow()


def encoded(rows: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return base64.b64encode(sink.getvalue()).decode("ascii")


def main() -> None:
    sessions = Sessions()
    for line in sys.stdin:
        try:
            answer = {"rows": encoded(answered(sessions, json.loads(line)))}
        except Exception as error:  # noqa: BLE001 - whatever Spark raises is told to the test that asked
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
