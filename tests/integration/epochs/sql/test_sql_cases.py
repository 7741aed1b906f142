"""A case of a job in SQL lands rows, compares tables of statements, and edits the SQL file."""

from __future__ import annotations

from pathlib import Path

from milepost.testing.case_file import load_cases
from milepost.testing.case_run import run_case
from milepost_testkit.runners.planes import Plane

SPEC = """\
name: counts
storage: s3://nobody/asks/for/it
sources:
  rows: {format: csv, path: s3://landing/rows/*.csv, schema: {k: string, v: int64}}
sql: counts.sql
tables: {format: delta, path: "s3://lake/{name}"}
"""
SQL = "CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS total FROM rows GROUP BY k HAVING sum(v) > 1"
CASES = """\
milepost_test: 1
job: counts.yaml
cases:
  edits:
    - epoch: {rows: [{k: a, v: 1}, {k: a, v: 2}, {k: b, v: 1}]}
      expect: {tables: {sums: [{k: a, total: 3}]}}
    - spec: {"sum(v) > 1": "sum(v) > 0"}
    - backfill: {from_checkpoint: 0}
      expect: {tables: {sums: [{k: a, total: 3}, {k: b, total: 1}]}}
"""


def test_a_case_edits_the_sql_of_a_job_and_backfills_it(tmp_path: Path, in_process: Plane) -> None:
    for name, text in {"counts.yaml": SPEC, "counts.sql": SQL, "case.yaml": CASES}.items():
        (tmp_path / name).write_text(text)
    result = run_case(load_cases(tmp_path / "case.yaml"), "edits", in_process())
    assert [step.faults for step in result.steps] == [(), (), ()]
