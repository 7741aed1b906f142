"""A process function's rows are identified by the key as the operator compares it: one zero, one NaN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost_testkit import wording
from milepost_testkit.specs.case_steps import Step, run_steps

SPEC = """\
name: levels
storage: s3://nobody/asks/for/it
sources:
  rows: {format: csv, path: "s3://landing/rows/*.csv", schema: {f: float64, v: int64}}
operators:
  - {uid: levels, kind: process, inputs: [rows], key: [f], function: "ops:Levels", output_key: [f]}
sinks:
  - {name: levels, input: levels, format: FORMAT, path: s3://lake/levels, mode: upsert}
"""
LEVELS = """\
class Levels:
    output = {"f": "float64", "v": "int64"}

    def on_rows(self, key, rows, state, ctx):
        for row in rows.to_pylist():
            if row["v"] < 0:
                ctx.delete()
            else:
                yield {"f": row["f"], "v": row["v"]}
"""


@pytest.fixture(params=["parquet", "delta"])
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    (tmp_path / "levels.yaml").write_text(SPEC.replace("FORMAT", request.param))
    (tmp_path / "ops.py").write_text(LEVELS)
    return tmp_path / "levels.yaml"


def epoch(f: float, v: int, levels: list[dict[str, Any]]) -> Step:
    return {"epoch": {"rows": [{"f": f, "v": v}]}, "expect": {"tables": {"levels": levels}}}


@pytest.mark.deep
def test_the_two_zeros_are_one_row_and_one_delete_takes_it_back(job: Path) -> None:
    steps = [epoch(0.0, 1, [{"v": 1}]), epoch(-0.0, 2, [{"f": 0.0, "v": 2}]), epoch(0.0, -1, [])]
    assert run_steps(job, *steps).faults == ()


def test_an_output_that_does_not_distinguish_keys_is_refused(job: Path) -> None:
    """Rows of two keys, and of two subtasks, would be one row of the table."""
    (job.parent / "ops.py").write_text(LEVELS.replace('"f": "float64"', '"f": "float32"'))
    (fault,) = run_steps(job, {"epoch": {"rows": []}}).faults
    wording.matches("problems", fault)
