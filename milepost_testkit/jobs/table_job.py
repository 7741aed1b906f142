"""A job over one Delta or Iceberg table: how the table is written, and what DuckDB says of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table as IcebergTable

from milepost.jobmaster import JobMaster, NothingToDo, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.formats.iceberg_writers import compact
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SPEC = """\
name: sales
storage: ../store
sources:
  orders:
    SOURCE
    schema: {k: int64, n: int64, at: "timestamp[us, UTC]"}
    event_time: at
    land: {max_bytes: 1500B, by: BY}
operators:
  - {uid: totals, kind: aggregate, inputs: [orders], key: [k], aggregates: {rows: count(*), total: sum(n)}}
sinks:
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
  - {name: rows, input: orders, format: parquet, path: ../lake/rows, mode: append}
checkpointing: {retained: {last: 50}}
"""
START = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


class OrdersTable(Protocol):
    """The table of a source, and how it is written. `source` has the source's lines of the spec."""

    source: str

    def append(self, rows: pa.Table) -> None: ...

    def compact(self) -> None: ...

    def delete_first(self) -> None: ...

    def lose_oldest(self) -> None:
        """Delete the oldest commit that the log of the job has not landed: the second one."""


@dataclass
class DeltaOrders:
    folder: Path
    source: str = "format: delta\n    path: ../warehouse/orders"

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self.folder / "warehouse" / "orders", rows, mode="append")

    def compact(self) -> None:
        DeltaTable(self.folder / "warehouse" / "orders").optimize.compact()

    def delete_first(self) -> None:
        DeltaTable(self.folder / "warehouse" / "orders").delete("n = 0")

    def lose_oldest(self) -> None:
        DeltaTable(self.folder / "warehouse" / "orders").create_checkpoint()
        (self.folder / "warehouse" / "orders" / "_delta_log" / f"{1:020}.json").unlink()


@dataclass
class IcebergOrders:
    folder: Path
    source: str = (
        'format: iceberg\n    catalog: {type: sql, uri: "sqlite:///../warehouse/catalog.db"}\n    table: shop.orders'
    )
    columns: pa.Schema = SCHEMA

    @property
    def table(self) -> IcebergTable:
        (self.folder / "warehouse").mkdir(exist_ok=True)
        uri, warehouse = (f"{scheme}://{self.folder}/warehouse" for scheme in ("sqlite", "file"))
        catalog = SqlCatalog("milepost", uri=f"{uri.replace('://', ':///')}/catalog.db", warehouse=warehouse)
        catalog.create_namespace_if_not_exists("shop")
        return catalog.create_table_if_not_exists("shop.orders", self.columns)

    def append(self, rows: pa.Table) -> None:
        self.table.append(rows)

    def compact(self) -> None:
        compact(self.table)

    def delete_first(self) -> None:
        self.table.delete(EqualTo("n", 0))

    def lose_oldest(self) -> None:
        self.table.maintenance.expire_snapshots().by_id(self.table.snapshots()[1].snapshot_id).commit()


class SalesJob:
    """A job over one table, and the rows that were appended to the table."""

    def __init__(self, folder: Path, table: OrdersTable, by: str) -> None:
        self.folder, self.table, self.appended = folder, table, SCHEMA.empty_table()
        (folder / "config").mkdir()
        self.write_spec(by)

    def write_spec(self, by: str) -> None:
        (self.folder / "config" / "sales.yaml").write_text(SPEC.replace("SOURCE", self.table.source).replace("BY", by))

    @property
    def master(self) -> JobMaster:
        return JobMaster(load_job(str(self.folder / "config" / "sales.yaml")))

    def append(self, *keys: int) -> None:
        first = self.appended.num_rows
        times = [START + timedelta(hours=first + at) for at in range(len(keys))]
        rows = pa.table({"k": keys, "n": range(first, first + len(keys)), "at": times}, SCHEMA)
        self.table.append(rows)
        self.appended = pa.concat_tables([self.appended, rows])

    def land(self) -> int:
        report = self.master.landings.land()
        assert not report.failed, report.failed
        return sum(landing.rows for landing in report.landed)

    def epoch(self, runner: SparklessRunner | None = None) -> int:
        result = self.master.epochs.run(Session.cli(), runner or SparklessRunner())
        assert not isinstance(result, NothingToDo), result
        return int(result.checkpoint_id)

    def assert_tables(self, rows: int) -> None:
        """Both tables are what DuckDB says of the first rows."""
        appended = self.appended.slice(0, rows)
        totals = "SELECT k, count(*) AS rows, sum(n)::BIGINT AS total FROM appended GROUP BY k ORDER BY k"
        expected = duckdb.sql(totals).to_arrow_table().to_pylist()
        assert self.master.reports.read("totals").select(["k", "rows", "total"]).sort_by("k").to_pylist() == expected
        read = self.master.reports.read("rows").select(SCHEMA.names).sort_by("n")
        assert read.to_pylist() == appended.sort_by("n").to_pylist()
