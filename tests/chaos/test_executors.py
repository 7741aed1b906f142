"""An executor that is lost with what it had shuffled: Spark makes its rows again, and the epoch goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import without_quality
from milepost_testkit.processes.own_process import in_own_process
from milepost_testkit.tasks.faults.worker_faults import KillExecutor, Workers


@pytest.mark.deep
def test_rows_of_a_lost_executor_are_made_again_and_the_epoch_goes_on(tmp_path: Path) -> None:
    """I12: Spark compares what it makes again with what was there: one time in a row of the exchange fails the job.

    In a process of its own: where Spark runs already, its master cannot be changed.
    """
    in_own_process(_lose_an_executor, tmp_path)


def _lose_an_executor(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        _run_without_one(tmp_path, monkeypatch)


def _run_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit = {
        without_quality(): "",
        "max_files: 4": "max_files: 2",
        "parallelism: 2": "parallelism: 2, conf: {spark.driver.memory: 600m}",
        'master: "local[2]"': 'master: "local-cluster[2,1,1024]"',
    }
    job = FlightsJob.create(tmp_path / "job", edit)
    job.land(range(1, 3))
    workers = Workers(monkeypatch, tmp_path / "executions")
    workers.fault = KillExecutor(2, str(tmp_path))
    job.run()
    assert (tmp_path / "killed").exists()
    again = [
        (level, one.subtask) for level in (0, 1) for one in workers.executions(level, "both", "output") if one.ended
    ]
    assert len(again) > len(set(again)), "rows of an earlier level were made again"
    job.assert_tables_equal_the_oracle()
