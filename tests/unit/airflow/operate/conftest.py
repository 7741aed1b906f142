"""The job that most acts are tried on; a file whose acts need another one has its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster.jobmaster import Session
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    """Two epochs."""
    job = SparklessJob.create(tmp_path, {"last: 1": "last: 20"})
    for name in ("a.csv", "b.csv"):
        job.land(name)
        job.master.run(Session.cli(), SparklessRunner())
    return job
