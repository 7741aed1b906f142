"""A job whose rows are traced: orders and payments of CSV files, and a table of each kind of operator."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from milepost.jobmaster import CheckpointReport, JobMaster, RowOrigin, Session
from milepost.jobmaster.tracing.tracing import TraceLimits
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost_testkit.runners.duckdb_tracer import duckdb_tracer
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edited

SPEC = """\
name: traced
storage: ../store
sources:
  orders:
    format: csv
    path: ../landing/orders/*.csv
    schema: {id: int64, k: string, v: int64, t: "timestamp[us, UTC]"}
    event_time: t
    watermark_delay: 30m
    limits_per_epoch: {max_files: 1}
    settle: 0s
  payments:
    format: csv
    path: ../landing/payments/*.csv
    schema: {k: string, paid: int64, at: "timestamp[us, UTC]"}
    event_time: at
    watermark_delay: 30m
    limits_per_epoch: {max_files: 1}
    settle: 0s
operators:
  - {uid: valid, kind: sql, inputs: [orders], sql: "SELECT id, k, v, t FROM orders WHERE v >= 0"}
  - {uid: totals, kind: aggregate, inputs: [valid], key: [k], aggregates: {n: count(*), s: sum(v), top: max(v)}}
  - {uid: hourly, kind: window, inputs: [valid], key: [k], window: {tumbling: 1h}, aggregates: {n: count(*), s: sum(v)}}
  - uid: sliding
    kind: window
    inputs: [valid]
    key: [k]
    window: {sliding: {size: 2h, slide: 30m}}
    aggregates: {n: count(*), s: sum(v)}
  - {uid: newest, kind: latest, inputs: [valid], key: [k], sequence_by: [t, id]}
  - {uid: paid, kind: join, inputs: [valid, payments], key: [k], within: [-20m, 20m]}
  - {uid: best, kind: top, inputs: [valid], key: [k], order_by: [{v: desc}, id], n: 3, rank: place}
sinks:
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
  - {name: hourly, input: hourly, format: parquet, path: ../lake/hourly, mode: append}
  - {name: sliding, input: sliding, format: parquet, path: ../lake/sliding, mode: append}
  - {name: late, input: hourly.late, format: parquet, path: ../lake/late, mode: append}
  - {name: newest, input: newest, format: parquet, path: ../lake/newest, mode: upsert}
  - {name: paid, input: paid, format: parquet, path: ../lake/paid, mode: append}
  - {name: best, input: best, format: parquet, path: ../lake/best, mode: upsert}
checkpointing: {retained: {last: 50}}
"""

_VALID = "(SELECT * FROM orders WHERE v >= 0)"
QUERIES = {
    "totals": f"SELECT k, count(*) n, sum(v)::BIGINT s, max(v) top FROM {_VALID} GROUP BY k",
    "hourly": "SELECT k, date_trunc('hour', t) window_start, date_trunc('hour', t) + INTERVAL 1 HOUR window_end, "
    f"count(*) n, sum(v)::BIGINT s FROM {_VALID} GROUP BY ALL",
    "sliding": "SELECT k, b window_start, b + INTERVAL 2 HOUR window_end, count(*) n, sum(v)::BIGINT s FROM "
    "(SELECT *, unnest([time_bucket(INTERVAL 30 MINUTE, t) - i * INTERVAL 30 MINUTE FOR i IN range(4)]) b "
    f"FROM {_VALID}) GROUP BY ALL",
    "late": f"SELECT id, k, v, t FROM {_VALID}",
    "newest": f"SELECT id, k, v, t FROM {_VALID} "
    "QUALIFY row_number() OVER (PARTITION BY k ORDER BY t DESC, id DESC) = 1",
    "paid": f"SELECT o.id, o.k, o.v, o.t, p.paid, p.at FROM {_VALID} o JOIN payments p ON o.k = p.k "
    "AND p.at - o.t BETWEEN INTERVAL (-20) MINUTE AND INTERVAL 20 MINUTE",
    "best": "SELECT id, k, v, t, place::INTEGER place FROM "
    f"(SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) place FROM {_VALID}) WHERE place <= 3",
}
"""Table -> what it is of its input, in SQL of DuckDB."""

EPOCHS = 6
MANY = TraceLimits(rows=1000)
_ROWS = 40
_KEYS = ("a", "b", "c", "", "a longer key, with a comma")


@dataclass(frozen=True)
class TracedJob:
    """The job under `folder`: `config/traced.yaml`, `landing/`, `store/`, `lake/`."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, edit: Mapping[str, str] | None = None) -> TracedJob:
        """Write the spec; `edit` replaces texts that must occur in it."""
        for name in ("config", "landing/orders", "landing/payments"):
            (folder / name).mkdir(parents=True)
        (folder / "config" / "traced.yaml").write_text(edited(SPEC, edit or {}))
        return cls(folder)

    @classmethod
    def with_random_rows(cls, folder: Path, seed: int) -> TracedJob:
        """Return a job that has run some epochs over random rows, some of them late."""
        job, numbers, next_id = cls.create(folder), random.Random(seed), 1
        for epoch in range(EPOCHS):
            orders, payments = [], []
            for _ in range(_ROWS):
                minute = epoch * 40 + numbers.randrange(-90, 60)
                orders.append(f'{next_id},"{numbers.choice(_KEYS)}",{numbers.randrange(-2, 9)},{_time(minute)}')
                payments.append(
                    f'"{numbers.choice(_KEYS)}",{numbers.randrange(50)},{_time(minute + numbers.randrange(50))}'
                )
                next_id += 1
            if epoch % 2:
                orders.insert(numbers.randrange(_ROWS), "")  # an empty line, which is no row
            job.land("orders", f"{epoch}.csv", "id,k,v,t", *orders)
            job.land("payments", f"{epoch}.csv", "k,paid,at", *payments)
        while isinstance(job.run(), CheckpointReport):
            pass
        return job

    def land(self, source: str, name: str, *lines: str) -> None:
        """Write an object of a source."""
        (self.folder / "landing" / source / name).write_text("".join(f"{line}\n" for line in lines))

    def run(self) -> Any:
        """Run an epoch."""
        return self.master.epochs.run(Session.cli(), SparklessRunner(sql=True))

    @property
    def loaded(self) -> LoadedJob:
        return load_job(str(self.folder / "config" / "traced.yaml"))

    @property
    def master(self) -> JobMaster:
        return JobMaster(self.loaded)

    def origin(
        self, sink: str, values: Mapping[str, Any], at: int | None = None, limits: TraceLimits = MANY
    ) -> RowOrigin:
        """Trace a row of a table, with the SQL of its operators in DuckDB."""
        texts = {name: str(value) for name, value in values.items()}
        return self.master.tracing.origin(sink, texts, duckdb_tracer(), at, limits)


def remade(sink: str, origin: RowOrigin) -> list[dict[str, Any]]:
    """Return the rows of a table that DuckDB makes of the input rows of an origin."""
    empty = {"orders": ("id", "k", "v", "t"), "payments": ("k", "paid", "at")}
    with duckdb.connect(config={"threads": 1}) as db:
        db.execute("SET TimeZone = 'UTC'")
        for name, columns in empty.items():
            rows = [item.listed for item in origin.inputs if item.source == name and item.count]
            db.register(name, rows[0] if rows else pa.table({column: pa.array([], pa.null()) for column in columns}))
        rows_made: list[dict[str, Any]] = db.sql(QUERIES[sink]).to_arrow_table().to_pylist()
        return rows_made


def _time(minute: int) -> str:
    day, rest = divmod(minute + 12 * 60, 24 * 60)
    return f"2026-01-{day + 1:02}T{rest // 60:02}:{rest % 60:02}:00Z"
