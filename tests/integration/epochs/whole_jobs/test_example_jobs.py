"""The jobs that are shipped as examples are DuckDB's answer over generated data, with a rollback and a backfill."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.example_jobs.example_job import ExampleJob, ExampleRun
from milepost_testkit.example_jobs.run import JOBS
from milepost_testkit.runners.planes import Plane

ROWS_PER_EPOCH = 300


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_every_table_of_an_example_is_duckdbs_answer_whatever_its_history(
    job: ExampleJob, tmp_path: Path, plane: Plane
) -> None:
    run = ExampleRun(job, tmp_path, plane(), ROWS_PER_EPOCH, seed=1)
    assert len(list(run.live(5))) == 7
