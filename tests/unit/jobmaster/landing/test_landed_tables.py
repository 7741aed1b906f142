"""A job over an open table: land, epochs, rollback and backfill read each row once, as DuckDB counts them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Protocol

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table as IcebergTable

from milepost.errors import InvalidRequest
from milepost.jobmaster import JobMaster, NothingToDo, Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.landing.source_probe import probe_landed_sources
from milepost.jobspec.load.load import load_job
from milepost_testkit.formats.iceberg_writers import compact
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SPEC = """\
name: sales
storage: ../store
sources:
  orders:
    SOURCE
    schema: {k: int64, n: int64, at: "timestamp[us, UTC]"}
    event_time: at
    land: {max_bytes: 1500B}
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

    def __init__(self, folder: Path, table: OrdersTable) -> None:
        self.folder, self.table, self.appended = folder, table, SCHEMA.empty_table()
        (folder / "config").mkdir()
        (folder / "config" / "sales.yaml").write_text(SPEC.replace("SOURCE", table.source))

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

    def epoch(self) -> int:
        result = self.master.epochs.run(Session.cli(), SparklessRunner())
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


@pytest.fixture(params=[DeltaOrders, IcebergOrders])
def job(tmp_path: Path, request: pytest.FixtureRequest) -> SalesJob:
    return SalesJob(tmp_path, request.param(tmp_path))


def test_a_job_reads_each_row_of_a_table_once_and_again_after_a_rollback_and_a_backfill(job: SalesJob) -> None:
    counts = {}
    for keys in ((1, 2, 1), (2, 3), (1, 3, 3, 4)):
        job.append(*keys)
        job.table.compact()
        assert job.land() == len(keys)
        counts[job.epoch()] = job.appended.num_rows
        job.assert_tables(job.appended.num_rows)
    for checkpoint in (*counts, *reversed(counts)):
        roll_back(job.master, checkpoint)
        job.assert_tables(counts[checkpoint])
    job.epoch()
    job.assert_tables(9)
    back_fill(job.master, SparklessRunner(), from_checkpoint=min(counts))
    job.assert_tables(9)
    job.append(7)
    job.land()
    job.epoch()
    job.assert_tables(10)


@pytest.mark.parametrize(("resume_from", "read"), [("earliest", [1, 3, 4]), ("latest", [1]), ("2100-01-01", [1])])
def test_a_log_goes_on_after_commits_that_expired(job: SalesJob, resume_from: str, read: list[int]) -> None:
    job.append(1)
    job.land()
    for key in (2, 3, 4):
        job.append(key)
    job.table.lose_oldest()
    (failed,) = job.master.landings.land().failed
    assert failed.error == "PositionExpired" and "--resume-from earliest" in failed.hint
    plan = job.master.gaps.plan("orders", resume_from)
    job.master.gaps.approve(plan.approved, "ada")
    job.land()
    job.append(5)
    job.land()
    while not isinstance(job.master.epochs.run(Session.cli(), SparklessRunner()), NothingToDo):
        pass
    rows = job.master.reports.read("rows").column("k").to_pylist()
    assert sorted(rows) == [*read, 5]


def test_a_change_of_rows_stops_the_landing_and_epochs_go_on_with_what_was_landed(job: SalesJob) -> None:
    job.append(1, 2)
    job.land()
    job.table.delete_first()
    job.append(3)
    (failed,) = job.master.landings.land().failed
    assert (failed.error, failed.may_pass) == ("InvalidRequest", False)
    assert "a landed log is only appended to" in failed.message
    job.epoch()
    job.assert_tables(2)


def test_the_watermark_waits_for_the_whole_of_the_initial_copy(job: SalesJob) -> None:
    for _ in range(4):
        job.append(*range(40))
    spec = job.folder / "config" / "sales.yaml"
    spec.write_text(
        spec.read_text().replace("event_time: at", "event_time: at\n    limits_per_epoch: {max_records: 2}")
    )
    assert job.land() == 160
    watermarks = []
    for _ in range(3):
        job.epoch()
        context = JobContext(load_job(str(spec)))
        state = context.head().state
        metadata = context.base_metadata(state, state.timeline().head)
        assert metadata is not None
        watermarks.append(metadata.sources["orders"].watermark_us)
    newest = START + timedelta(hours=159)
    assert watermarks == [None, None, int(newest.timestamp()) * 1_000_000]


def test_doctor_shows_the_next_record_and_what_is_refused(job: SalesJob) -> None:
    def probe(spec: str = "sales.yaml") -> str:
        (probed,) = probe_landed_sources(JobContext(load_job(str(job.folder / "config" / spec))))
        return probed.detail

    job.append(1, 2)
    assert "nothing was landed yet; not landed yet: 1 " in probe()
    assert not (job.folder / "store").exists()
    job.land()
    assert "landed 2 rows" in probe() and "nothing new after position" in probe()
    job.table.delete_first()
    assert probe().startswith("InvalidRequest: source orders:")


@pytest.mark.parametrize("path", ["../warehouse/orders", "../warehouse/../warehouse/orders/"])
def test_a_delta_table_that_the_job_writes_cannot_be_its_source(tmp_path: Path, path: str) -> None:
    refuse_own_table(tmp_path, DeltaOrders(tmp_path), f"format: delta, path: {path}")


def test_an_iceberg_table_that_the_job_writes_cannot_be_its_source(tmp_path: Path) -> None:
    table = IcebergOrders(tmp_path)
    refuse_own_table(tmp_path, table, f"path: ../lake/rows, {', '.join(map(str.strip, table.source.splitlines()))}")


def refuse_own_table(folder: Path, table: OrdersTable, sink: str) -> None:
    spec = SPEC.replace("SOURCE", table.source).replace("format: parquet, path: ../lake/rows", sink)
    (folder / "config").mkdir()
    (folder / "config" / "sales.yaml").write_text(spec)
    with pytest.raises(InvalidRequest, match="this is the table of sink rows; read the sink's input"):
        load_job(str(folder / "config" / "sales.yaml")).graph()


PAGE = (REPOSITORY / "docs" / "how-to" / "read-tables.md").read_text(encoding="utf-8")


def test_the_examples_of_the_page_read_a_delta_and_an_iceberg_table(tmp_path: Path) -> None:
    delta, iceberg = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "config").mkdir()
    rest = delta[delta.index("operators:") :].replace("../tables", "../iceberg")
    (tmp_path / "config" / "delta.yaml").write_text(delta)
    (tmp_path / "config" / "iceberg.yaml").write_text(f"name: iceberg\nstorage: ../store\n{iceberg}{rest}")
    amounts = pa.array([Decimal("1.50"), Decimal("2.25")], pa.decimal128(10, 2))
    rows = pa.table({"customer": ["a", "a"], "amount": amounts, "at": pa.array([START] * 2, SCHEMA.field("at").type)})
    orders = IcebergOrders(tmp_path, columns=rows.schema)
    for count in (2, 4):
        write_deltalake(tmp_path / "warehouse" / "orders", rows, mode="append")
        orders.append(rows)
        for name in ("delta", "iceberg"):
            master = JobMaster(load_job(str(tmp_path / "config" / f"{name}.yaml")))
            assert not master.landings.land().failed
            master.epochs.run(Session.cli(), SparklessRunner())
            (total,) = master.reports.read("totals").to_pylist()
            assert (total["orders"], total["total"]) == (count, Decimal("3.75") * count / 2)
