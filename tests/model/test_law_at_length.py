"""The law over longer histories of larger graphs (`tests/unit/operators/test_law.py` says what it is)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given

from milepost_testkit import profiles
from milepost_testkit.law.examples import Example, JobExample, examples, job_examples
from milepost_testkit.law.run import hold, hold_job


@pytest.mark.deep
@profiles.examples(share=1.5, suppress_health_check=list(HealthCheck))
@given(examples(max_operators=5, max_epochs=6, max_rows=12))
def test_the_law_holds_in_longer_histories_of_larger_graphs(example: Example) -> None:
    with tempfile.TemporaryDirectory() as folder:
        hold(example, Path(folder))


@pytest.mark.deep
@profiles.examples(share=0.1, suppress_health_check=list(HealthCheck))
@given(example=job_examples(max_acts=8, feed=True, served=True, landed=True))
@pytest.mark.usefixtures("database")
def test_the_law_holds_in_longer_histories_of_whole_jobs(example: JobExample) -> None:
    with tempfile.TemporaryDirectory() as folder:
        hold_job(example, Path(folder, "job"))
