"""A Connection that is of no use is refused before an epoch is triggered."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import EnvironmentUnusable
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


def test_a_use_case_reads_a_connection_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever edits it meanwhile must not make an epoch of two stores."""
    edit = {"storage: ../store\n": "storage: s3://jobs\nstore: {conn_id: lake}\n", "../lake": "s3://lake"}
    job = SparklessJob.create(tmp_path, edit)
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", "aws://a:b@/?endpoint_url=http://127.0.0.1:1")
    context = job.context
    first = context.store_config.endpoint_url
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", "aws://a:b@/?endpoint_url=http://127.0.0.1:2")
    assert (first, context.sink_config("table").endpoint_url) == ("http://127.0.0.1:1", "http://127.0.0.1:1")
    assert context.store_at("s3://saved").config.endpoint_url == "http://127.0.0.1:1"
    assert job.master.context.store_config.endpoint_url == "http://127.0.0.1:2", "the next one looks again"


@pytest.mark.parametrize("held", ["", "aws://a:b@", "{"])
def test_a_spark_connection_that_is_of_no_use_is_refused_before_the_trigger(
    held: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in Airflow's first task: no checkpoint is begun that only the next task could abort."""
    job = SparklessJob.create(tmp_path, {"checkpointing:": "spark: {conn_id: here}\ncheckpointing:"})
    job.land("a.csv")
    monkeypatch.setenv("AIRFLOW_CONN_HERE", held)
    with wording.raises(EnvironmentUnusable):
        job.master.triggers.trigger(Session.cli())
    assert job.context.head().state.timeline().pending is None
    monkeypatch.setenv("AIRFLOW_CONN_HERE", "spark-connect://localhost")
    assert job.master.triggers.trigger(Session.cli()).checkpoint_id == 1
