"""Small jobs that count the rows of each key, one for each stage of a job's life."""

from __future__ import annotations

from collections.abc import Mapping

from milepost_testkit.compatibility.stored_job import StoredJob
from milepost_testkit.specs.spec_edits import edited

SPEC = """\
name: NAME
storage: ../store
sources:
  rows:
    format: csv
    path: ../landing/rows/*.csv
    options: {null_values: []}
    schema: {k: int64, v: int64, at: "timestamp[us, UTC]"}
    event_time: at
    limits_per_epoch: {max_files: 1}
    settle: 0s
operators:
  - {uid: totals, kind: aggregate, inputs: [rows], key: [k], aggregates: {rows: count(*), total: sum(v)}}
  - {uid: unique, kind: deduplicate, inputs: [rows], key: [k, at]}
sinks:
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
  - {name: rows, input: unique, format: delta, path: ../lake/rows, mode: append}
checkpointing: {retained: {last: 60}, timeout: 10s, tolerable_failures: 9}
"""
ORACLE = """\
CREATE VIEW input AS SELECT * FROM read_csv(getvariable('rows'),
  columns = {k: 'BIGINT', v: 'BIGINT', "at": 'TIMESTAMPTZ'});
CREATE VIEW totals AS SELECT k, count(*) AS rows, sum(v)::BIGINT AS total FROM input GROUP BY k;
CREATE VIEW rows AS SELECT DISTINCT ON (k, "at") * FROM input;
"""


def create(job: StoredJob, epochs: int, later: int, edits: Mapping[str, str] | None = None) -> None:
    """Write the spec, the input of so many epochs, and that of later ones."""
    job.write_config({f"{job.name}.yaml": edited(SPEC, {"NAME": job.name, **(edits or {})})}, ORACLE)
    for epoch in range(1, epochs + later + 1):
        lines = ["k,v,at", *(f"{k},{epoch * k},2026-03-{epoch:02}T0{k}:00:00Z" for k in range(1, 5))]
        lines.append(f"{10 * epoch},{epoch},2026-03-{epoch:02}T09:00:00Z")
        body = "".join(f"{line}\n" for line in lines).encode()
        job.land(f"rows/{epoch:03}.csv", body, later=0 if epoch <= epochs else epoch - epochs)
