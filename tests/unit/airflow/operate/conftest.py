"""The job that most acts are tried on; a file whose acts need another one has its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner


@pytest.fixture(scope="session")
def two_epochs(tmp_path_factory: pytest.TempPathFactory) -> SparklessJob:
    """Only to be copied."""
    job = SparklessJob.create(tmp_path_factory.mktemp("prepared") / "job", {"last: 1": "last: 20"})
    for name in ("a.csv", "b.csv"):
        job.land(name)
        job.master.epochs.run(Session.cli(), SparklessRunner())
    return job


@pytest.fixture
def job(two_epochs: SparklessJob, tmp_path: Path) -> SparklessJob:
    return two_epochs.copy_to(tmp_path / "job")
