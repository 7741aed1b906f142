"""A job whose sources have all that planning records of them: skipped, empty, missing, forgotten and late input."""

from __future__ import annotations

import pytest

from milepost.epoch.plan import EpochPlan
from milepost_testkit.compatibility.stored_job import StoredJob

LATER = 2
SPEC = """\
name: sources
storage: ../store
sources:
  rows:
    format: csv
    path: ../landing/rows/**/*.csv
    partitions: {day: date}
    schema: {k: int64, at: "timestamp[us, UTC]"}
    event_time: at
    max_event_time_ahead: 1d
    idle_timeout: 10m
    expect_every: 10m
    start: latest
    settle: 0s
    forget_after: 3d
    on_bad_name: skip
    bad_records: dead_letter
    max_bad_ratio: 0.9
    min_rows: 2
  others:
    {format: json, path: ../landing/others/*.jsonl, event_time: at, idle_timeout: 10m, settle: 0s, on_missing: skip,
     schema: {k: int64, at: "timestamp[us, UTC]"}}
operators:
  - {uid: both, kind: sql, inputs: [rows, others], sql: "SELECT k, at FROM rows UNION ALL SELECT k, at FROM others"}
  - {uid: hourly, kind: window, inputs: [both], key: [k], window: {tumbling: 1h}, aggregates: {n: count(*)}}
sinks:
  - {name: hourly, input: hourly, format: parquet, path: ../lake/hourly, mode: append}
  - {name: late, input: hourly.late, format: parquet, path: ../lake/late, mode: append}
  - {name: bad, input: rows.bad, format: parquet, path: ../lake/bad, mode: append}
  - {name: both, input: both, format: parquet, path: ../lake/both, mode: append}
checkpointing: {retained: {last: 9}, timeout: 10s}
"""
ORACLE = """\
CREATE VIEW "both" AS
  SELECT k, "at" FROM read_csv(getvariable('rows'), ignore_errors = true, hive_partitioning = false,
    columns = {k: 'BIGINT', "at": 'TIMESTAMPTZ'})
  UNION ALL SELECT * FROM read_json(getvariable('others'), columns = {k: 'BIGINT', "at": 'TIMESTAMPTZ'});
"""


def read_odd_input(job: StoredJob) -> None:
    """Epochs over input of which something is wrong."""
    job.write_config({"sources.yaml": SPEC}, ORACLE)
    job.land("rows/day=2026-02-20/0.csv", _rows(0))
    job.land("others/1.jsonl", b'{"k": 3, "at": "2026-03-01T02:00:00Z"}\n', day=1)
    job.run()
    job.land("rows/day=2026-03-01/1.csv", _rows(1), day=1)
    job.run()
    job.land("rows/day=2026-03-02/2.csv", _rows(2) + b"5,2026-03-01T01:00:00Z\n6,2199-01-01T00:00:00Z\n!,\n", day=2)
    job.land("rows/day=soon/2.csv", _rows(2), day=2)
    job.land("rows/day=2026-03-02/empty.csv", b"", day=2)
    job.land("others/missing.jsonl", b'{"k": 9, "at": "2026-03-01T02:00:00Z"}\n', day=2)

    def delete(plan: EpochPlan) -> None:
        (job.folder / "landing/others/missing.jsonl").unlink()

    job.run(before=delete)
    job.delete("rows/day=2026-03-01/1.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("milepost.sources.planning.consumed.MAX_RUNS", 1)
        for day in (8, 9):
            job.land(f"rows/day=2026-03-0{day}/{day}.csv", _rows(day), day=day)
            job.run()
    for number in range(1, LATER + 1):
        job.land(f"rows/day=2026-03-1{number}/1{number}.csv", _rows(10 + number), day=10 + number, later=number)


def _rows(day: int) -> bytes:
    return f"k,at\n1,2026-03-{day + 1:02}T00:00:00Z\n{day},2026-03-{day + 1:02}T01:00:00Z\n".encode()
