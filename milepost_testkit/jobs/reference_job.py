"""A job whose SQL has texts that Spark would replace by its settings: in a SELECT, in a name, in a condition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from milepost.epoch.answers import EpochRunner
from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import load_job

SPEC = """\
name: references
storage: ../store
sources:
  rows: {{format: json, path: ../landing/*.json, settle: 0s, schema: {{k: int64, text: string}}}}
operators:
  - uid: named
    kind: sql
    inputs: [rows]
    sql: >-
      SELECT k, '${{spark.app.name}}' AS app, "${{system:user.name}} ${{sparkconf:spark.master}}" AS `${{x}}`
      FROM rows WHERE text = '${{hivevar:a}}'
  - {{uid: totals, kind: aggregate, inputs: [rows], key: [k],
     aggregates: {{n: "count(*) filter (where text = '${{system:user.name}}')"}}}}
sinks:
  - {{name: named, input: named, format: parquet, path: ../lake/named, mode: append}}
  - {{name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}}
spark: {{{spark}, parallelism: 1}}
"""

NAMED = [{"k": 1, "app": "${spark.app.name}", "${x}": "${system:user.name} ${sparkconf:spark.master}"}]
TOTALS = [{"k": 1, "n": 0}, {"k": 2, "n": 1}]
"""What its tables show: each text as it is written."""


def tables_with_references(folder: Path, spark: str, runner: EpochRunner) -> tuple[list[Any], list[Any]]:
    """Run one epoch of the job, and return the rows of its tables. Args: spark: where, as a spec says it."""
    for name in ("config", "landing"):
        (folder / name).mkdir(parents=True)
    (folder / "config" / "references.yaml").write_text(SPEC.format(spark=spark))
    rows = '{"k": 1, "text": "${hivevar:a}"}\n{"k": 2, "text": "${system:user.name}"}\n'
    (folder / "landing" / "rows.json").write_text(rows)
    master = JobMaster(load_job(str(folder / "config" / "references.yaml")))
    master.epochs.run(Session.cli(), runner)
    return master.reports.read("named").to_pylist(), master.reports.read("totals").sort_by("k").to_pylist()
