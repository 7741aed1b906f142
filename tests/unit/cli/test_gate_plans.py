"""Commands that change nothing run without pandas, except plans that build the expectations of the quality gate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

pytestmark = pytest.mark.deep

GATE = {
    "mode: upsert}\n": "mode: upsert}\nquality:\n"
    "  - {sink: table, expectations: [{type: expect_column_values_to_be_between, column: k, max_value: 90}]}\n",
}


def test_a_backfill_of_a_job_with_a_gate_is_planned_in_a_process_of_its_own(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path, GATE)
    job.land("a.csv")
    assert job.master.epochs.run(Session.cli(), SparklessRunner()).status == "completed"
    spec = str(tmp_path / "config" / "small.yaml")
    planned = subprocess.run(
        [sys.executable, "-m", "milepost", "backfill", spec, "--from-checkpoint", "0", "--dry-run"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert planned.returncode == 0, planned.stderr
    assert "nothing was changed" in planned.stdout
