"""Spark's `MERGE INTO` on Delta and Iceberg, in one warm session with as many partitions as cores.

`deletes`: the rows that a merge replaces are marked in files beside the data (Delta's deletion vectors, Iceberg's
merge-on-read), else the files they are in are written again. Compaction, which the former needs sooner or later, is not
part of any epoch here.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.systems.contract import PARALLELISM, PAUSED_SPARK, Folders, NotAsked, link_files
from bench.systems.merges.merging import CHANGES, TableVolumes, aggregated, merge_sql, stage_changes
from bench.workloads.workloads import Workload
from scripts.spark.spark_tables import spark_with_tables, sqlite_catalog

_READ_SQL = "SELECT count(*), sum(bids), sum(total), max(highest) FROM {table}"


class SparkMerge:
    """One table of a format; with `aggregates` an epoch's bids are grouped in the statement that merges them."""

    def __init__(self, format: str, *, deletes: bool, aggregates: str = "") -> None:
        self._format, self._deletes, self._aggregates = format, deletes, bool(aggregates)

    def prepare(self, workload: Workload, folders: Folders) -> None:
        self._workload, self._folders = workload, folders
        self._volumes = TableVolumes(folders)
        self._spark = _open_spark(workload, folders)
        self._table = f"delta.`{folders.output}`" if self._format == "delta" else "lake.bench.totals"

    def stage(self, source: Path, target: Path) -> None:
        if self._aggregates:
            link_files(source, target)
        else:
            stage_changes(self._workload, source, target)

    def epoch(self, number: int) -> None:
        folder = self._folders.epoch(number)
        rows = (
            aggregated(self._workload, f"parquet.`{folder}`")
            if self._aggregates
            else f"SELECT * FROM parquet.`{folder / CHANGES}`"
        )
        if number == 0:
            properties = ", ".join(f"'{name}' = '{value}'" for name, value in self._properties().items())
            self._spark.sql(f"CREATE TABLE {self._table} USING {self._format} TBLPROPERTIES ({properties}) AS {rows}")
        else:
            self._spark.sql(merge_sql(self._workload, self._table, rows)).collect()

    def _properties(self) -> dict[str, str]:
        if self._format == "delta":
            return {"delta.enableDeletionVectors": str(self._deletes).lower()}
        how = "merge-on-read" if self._deletes else "copy-on-write"
        return {"format-version": "3" if self._deletes else "2", "write.merge.mode": how}

    def figures(self, number: int) -> dict[str, Any]:
        """The table's volumes; `read_s`: what Spark takes to read every row of it now."""
        started = time.perf_counter()
        self._spark.sql(_READ_SQL.format(table=self._table)).collect()
        return {"read_s": time.perf_counter() - started, **self._volumes.figures()}

    def probe(self, name: str) -> dict[str, Any]:
        raise NotAsked(name)

    def result_sql(self) -> str:
        """Of the rows as Spark reads them, which applies what the format marks as deleted."""
        copy = self._folders.work / "published"
        self._spark.table(self._table).write.mode("overwrite").parquet(str(copy))
        return f"SELECT {', '.join(self._workload.result_columns)} FROM read_parquet('{copy}/*.parquet')"

    def versions(self) -> dict[str, str]:
        return {"pyspark (MERGE)": self._spark.version, self._format: _library(self._format)}

    def close(self) -> None:
        self._spark.stop()


def _open_spark(workload: Workload, folders: Folders) -> Any:
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "TZ": "UTC"}
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        **PAUSED_SPARK,
        "spark.driver.memory": workload.memory,
        "spark.local.dir": str(folders.work / "spark"),
        "spark.sql.warehouse.dir": str(folders.work / "warehouse"),
        "spark.sql.shuffle.partitions": str(PARALLELISM),
        "spark.databricks.delta.snapshotPartitions": str(PARALLELISM),  # of the log; 50 by default, for clusters
    }
    catalog = sqlite_catalog(folders.work / "catalog.db", folders.output)
    spark = spark_with_tables(PARALLELISM, catalogs={"lake": catalog}, settings=settings)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
    return spark


def _library(format: str) -> str:
    """Name and version of a format's jar, which is in the environment that this runs in."""
    return next(file.stem for file in Path(sys.prefix, "jars").glob(f"{format}-spark*.jar"))
