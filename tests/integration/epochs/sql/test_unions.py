"""UNION ALL over a source and an operator of another level: equal to DuckDB node by node, also with rows in flight."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from milepost.epoch.answers import EpochRunner
from milepost.jobmaster import CheckpointReport, JobMaster, Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost.protocol.records.manifest_state import JobStatus
from milepost_testkit.runners.planes import Plane

pytestmark = pytest.mark.deep

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US

SPEC = """\
name: sales
storage: ../store
sources:
  web: {format: csv, path: ../landing/web/*.csv, settle: 0s, schema: {k: string, v: int32, at: "timestamp[us, UTC]"},
        event_time: at, watermark_delay: 10m}
  shop: {format: csv, path: ../landing/shop/*.csv, settle: 0s, schema: {k: string, v: int64, at: "timestamp[us, UTC]"},
         event_time: at, watermark_delay: 30m}
operators:
  - {uid: once, kind: deduplicate, inputs: [shop], key: [k, v, at]}
  - {uid: sold, kind: sql, inputs: [web, once], sql: "SELECT k, v AS paid, at FROM web WHERE v > 0
     UNION ALL SELECT upper(k) AS name, v, at FROM once
     UNION ALL SELECT 'refund' AS k, v AS v, at FROM web WHERE v < 0"}
  - {uid: twice, kind: sql, inputs: [sold], sql: "SELECT k, paid * 2 AS paid, at FROM sold WHERE k <> 'refund'"}
  - {uid: totals, kind: aggregate, inputs: [twice], key: [k], aggregates: {n: count(*), paid: sum(paid)}}
  - {uid: hourly, kind: window, inputs: [sold], key: [k], window: {tumbling: 1h}, aggregates: {paid: sum(paid)}}
sinks:
  - {name: once, input: once, format: parquet, path: ../lake/once, mode: append}
  - {name: sold, input: sold, format: parquet, path: ../lake/sold, mode: append}
  - {name: twice, input: twice, format: parquet, path: ../lake/twice, mode: append}
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
  - {name: hourly, input: hourly, format: parquet, path: ../lake/hourly, mode: append}
  - {name: late, input: hourly.late, format: parquet, path: ../lake/late, mode: append}
checkpointing: {MORE}
spark: {master: "local[2]", parallelism: 2, buffer_size: 300}
"""

NODES = {
    "once": "SELECT DISTINCT * FROM shop",
    "sold": """SELECT k, v::BIGINT AS paid, "at" FROM web WHERE v > 0 UNION ALL SELECT upper(k), v, "at" FROM once
        UNION ALL SELECT 'refund', v, "at" FROM web WHERE v < 0""",
    "twice": """SELECT k, paid * 2 AS paid, "at" FROM sold WHERE k <> 'refund'""",
    "totals": "SELECT k, count(*) AS n, sum(paid)::BIGINT AS paid FROM twice GROUP BY k",
    "hourly": """SELECT k, start AS window_start, start + 3600000000 AS window_end, sum(paid)::BIGINT AS paid
        FROM (SELECT *, "at" - "at" % 3600000000 AS start FROM (SELECT * FROM sold EXCEPT ALL SELECT * FROM late))
        GROUP BY k, start""",
}
"""Each node as a query over the tables of its inputs, less its own late rows."""


@dataclass
class Sales:
    """The job in a folder, and all rows that it was given: source -> epoch -> rows."""

    folder: Path
    given: dict[str, list[list[dict[str, Any]]]]

    @classmethod
    def create(cls, folder: Path, checkpointing: str) -> Sales:
        (folder / "config").mkdir()
        job = cls(folder, {"web": [], "shop": []})
        job.configure(checkpointing)
        return job

    def configure(self, checkpointing: str) -> None:
        (self.folder / "config" / "sales.yaml").write_text(SPEC.replace("{MORE}", checkpointing))

    def land(self, epoch: int) -> None:
        for source in self.given:
            chance = random.Random(f"{source}/{epoch}")
            rows = []
            for _ in range(60):
                minute = 600 + epoch * 70 + chance.randint(-60, 60) - (180 if chance.random() < 0.1 else 0)
                rows.append({"k": chance.choice("abcdef"), "v": chance.randint(-3, 9), "at": minute * MINUTE_US})
            self.given[source].append(rows + rows[:5])
            folder = self.folder / "landing" / source
            folder.mkdir(parents=True, exist_ok=True)
            for part in range(2):  # a subtask each
                lines = [f"{row['k']},{row['v']},{stamp(row['at'])}" for row in self.given[source][-1][part::2]]
                (folder / f"{epoch}-{part}.csv").write_text("\n".join(["k,v,at", *lines, ""]))

    def run(self, runner: EpochRunner) -> CheckpointReport:
        report = self.master().epochs.run(Session.cli(), runner)
        assert isinstance(report, CheckpointReport) and report.status == "completed"
        return report

    def drain(self, runner: EpochRunner) -> None:
        """Work off what is in flight, then fire everything."""
        while JobContext(self.load()).head().state.status is not JobStatus.FINISHED:
            assert isinstance(self.master().epochs.run(Session.cli(), runner, drain=True), CheckpointReport)
        assert self.master().reports.status().in_flight_bytes == 0

    def master(self) -> JobMaster:
        return JobMaster(self.load())

    def load(self) -> LoadedJob:
        return load_job(self.folder / "config" / "sales.yaml")

    def table(self, sink: str) -> pa.Table:
        table = self.master().reports.read(sink)
        at = [name for name, field in zip(table.column_names, table.schema, strict=True) if is_time(field)]
        for name in at:
            table = table.set_column(table.column_names.index(name), name, table.column(name).cast(pa.int64()))
        return table

    def assert_each_node_equals_its_query(self) -> None:
        tables = {name: self.table(name) for name in ("once", "sold", "twice", "totals", "hourly", "late")}
        tables |= {name: pa.Table.from_pylist([row for rows in of for row in rows]) for name, of in self.given.items()}
        with duckdb.connect(config={"threads": 1}) as db:
            for name, table in tables.items():
                db.register(name, table)
            for name, query in NODES.items():
                expected = db.sql(query).to_arrow_table()
                assert expected.num_rows, name
                assert multiset(tables[name]) == multiset(expected), name


def is_time(field: pa.Field) -> bool:
    return bool(pa.types.is_timestamp(field.type))


def stamp(time_us: int) -> str:
    minutes = time_us // MINUTE_US
    return f"1970-01-{1 + minutes // 1440:02}T{minutes % 1440 // 60:02}:{minutes % 60:02}:00Z"


def multiset(rows: pa.Table) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows.to_pylist())


def test_a_union_of_two_levels_equals_a_batch_query_and_its_rows_are_late_by_its_slowest_input(
    tmp_path: Path, plane: Plane
) -> None:
    runner = plane()
    job = Sales.create(tmp_path, "{retained: 3}")
    late: Counter[str] = Counter()
    watermarks: dict[str, int | None] = {"web": None, "shop": None}
    seen: set[tuple[Any, ...]] = set()
    for epoch in range(3):
        job.land(epoch)
        job.run(runner)
        start_us = None if None in watermarks.values() else min(one for one in watermarks.values() if one is not None)
        sold = [
            {"k": row["k"] if row["v"] > 0 else "refund", "paid": row["v"], "at": row["at"]}
            for row in job.given["web"][epoch]
            if row["v"]
        ]
        for row in job.given["shop"][epoch]:
            if tuple(row.values()) not in seen:
                seen.add(tuple(row.values()))
                sold.append({"k": row["k"].upper(), "paid": row["v"], "at": row["at"]})
        if start_us is not None:
            late.update(
                repr(sorted(row.items())) for row in sold if row["at"] - row["at"] % HOUR_US + HOUR_US <= start_us
            )
        for source, delay in (("web", 10), ("shop", 30)):
            newest = max(row["at"] for row in job.given[source][epoch]) - delay * MINUTE_US
            watermarks[source] = max(newest, watermarks[source] or newest)
    assert late and multiset(job.table("late")) == late
    job.drain(runner)
    job.assert_each_node_equals_its_query()


def test_a_union_of_two_levels_equals_a_batch_query_with_rows_in_flight(tmp_path: Path, plane: Plane) -> None:
    runner = plane()
    job = Sales.create(tmp_path, "{aligned_timeout: 1ms}")
    in_flight = 0
    for epoch in range(3):
        job.land(epoch)
        job.run(runner)
        in_flight += job.master().reports.status().in_flight_bytes
    assert in_flight, "no row was left in flight: the test would prove nothing"
    job.configure("{retained: 3}")
    job.drain(runner)
    job.assert_each_node_equals_its_query()
