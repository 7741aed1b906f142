"""A small job without Spark whose spec and process class change between epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from milepost.jobmaster import CheckpointDetails, Session
from milepost.jobmaster.compatibility.preflight import preflight
from milepost.jobmaster.job.code import read_code
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SPEC = """\
name: small
storage: ../store
sources:
  rows:
    format: csv
    path: ../landing/*.csv
    schema: {k: int32, v: int32}
    limits_per_epoch: {max_files: 1}
    settle: 0s
operators:
  - {uid: sums, kind: aggregate, inputs: [rows], key: [k], aggregates: {total: sum(v), worst: max(v)}}
  - {uid: lasts, kind: process, inputs: [rows], key: [k], function: "ops:Lasts"}
sinks:
  - {name: lasts, input: lasts, format: parquet, path: ../lake/lasts, mode: append}
"""
SINK = "  - {name: sums, input: sums, format: parquet, path: ../lake/sums, mode: upsert}\n"
CLASS = """\
class Lasts:
    state = {STATE}
    output = {"k": "int64", "seen": "string"}

    def on_rows(self, key, rows, state, ctx):
        values = rows.column("v").to_pylist()
        yield {"k": key, "seen": repr(dict(state))}
        for name in state:
            state[name] = values[-1]
"""


class ChangingJob(SparklessJob):
    """A job whose spec and class a test writes anew between epochs."""

    @classmethod
    def empty(cls, folder: Path) -> ChangingJob:
        for name in ("config", "landing"):
            (folder / name).mkdir(parents=True)
        return cls(folder)

    def write(self, state: dict[str, str], text: str = SPEC) -> None:
        (self.folder / "config" / "small.yaml").write_text(text)
        (self.folder / "config" / "ops.py").write_text(CLASS.replace("{STATE}", repr(state)))

    def run(self, **options: Any) -> CheckpointDetails:
        report = self.master.epochs.run(Session.cli(), SparklessRunner(), **options)
        assert isinstance(report, CheckpointDetails), report
        return report

    def next(self, state: dict[str, str], text: str = SPEC, **options: Any) -> CheckpointDetails:
        """One more epoch, of one more file, with this class and spec."""
        self.write(state, text)
        number = len(list((self.folder / "landing").iterdir()))
        self.land(f"{number}.csv", "k,v\n" + "".join(f"{k},{10 * number + k}\n" for k in (0, 1, 2) if k <= number))
        return self.run(**options)

    def report(self) -> dict[str, dict[str, str]]:
        context = self.context
        state = context.head().state
        base = context.base_metadata(state, state.timeline().head)
        return {row["uid"]: row for row in preflight(context, base, read_code(context).load(context))}
