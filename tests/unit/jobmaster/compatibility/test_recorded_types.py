"""State of any aggregate is shown: the types of the input are derived from the stored types."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster import JobMaster, Session
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

pytestmark = pytest.mark.deep


@pytest.mark.parametrize("call", ["var(v)", "var(v) filter (where k > 0)", "stddev(v)"])
def test_the_state_of_a_variance_over_decimals_is_shown(call: str, tmp_path: Path) -> None:
    edit = {"v: string": 'v: "decimal(9,2)"', "rows: count(*)": f'rows: "{call}"'}
    job = SparklessJob.create(tmp_path / "job", edit)
    (job.folder / "landing" / "1.csv").write_text("k,v\n1,2.50\n1,4.50\n")
    master = JobMaster(job.loaded())
    master.epochs.run(Session.cli(), SparklessRunner())
    (row,) = master.reports.state_values("latest").to_pylist()
    assert row["rows"] == pytest.approx(2.0 if call.startswith("var") else 2.0**0.5)
