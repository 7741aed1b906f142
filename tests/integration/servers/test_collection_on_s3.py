"""Audit and collection over a real S3 server: its listings, its clock, its deletes (I8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost.jobmaster.retention.garbage_collection import collect_garbage
from milepost.protocol.records.layout import token_prefix
from milepost_testkit.jobs.sparkless.sparkless_job import TIMEOUT_MS, SparklessJob
from milepost_testkit.servers.s3_servers import Ministack
from milepost_testkit.stores.job_stores import LaterStore

pytestmark = pytest.mark.deep

DAY_MS = 24 * 3_600_000
SESSION = Session.cli().session_id


@pytest.fixture
def job(ministack: Ministack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparklessJob:
    """Two published epochs with state and table in a bucket, next to another job's objects."""
    for name, value in ministack.environment().items():
        monkeypatch.setenv(name, value)
    bucket = ministack.new_bucket()
    endpoint = f"store: {{endpoint_url: '{ministack.endpoint_url}'}}"
    edit = {
        "storage: ../store\n": f"storage: s3://{bucket}/jobs\n{endpoint}\n",
        "../lake/table": f"s3://{bucket}/lake/table",
        "{last: 1}": "{last: 9}",
    }
    job = SparklessJob.create(tmp_path, edit)
    for number in range(2):
        job.land(f"{number}.csv")
        job.epoch()
    return job


def test_what_nothing_reaches_is_found_listed_and_deleted_and_nothing_else(job: SparklessJob) -> None:
    """The bucket holds other things as well: only the job's own unreachable objects go."""
    first, second = job.context.head().state.checkpoints
    stray = token_prefix(second.checkpoint_id, first.token) + "state/latest/stray.parquet"
    job.context.store.put(stray, b"late")
    before = {stat.key for stat in job.context.store.list("chk-")}
    report = job.master.reports.fsck()
    assert [item.key for item in report.unreachable] == [stray]
    assert (report.exit_code, report.missing, report.foreign) == (0, (), ())
    assert job.master.collect_garbage().deleted_objects == 0
    context = job.context
    context.__dict__["store"] = LaterStore(context.store, later_ms=DAY_MS)
    collect_garbage(context, SESSION, TIMEOUT_MS)
    assert {stat.key for stat in job.context.store.list("chk-")} == before - {stray}
    assert (verified := job.master.reports.verify(deep=True)).unasked == verified.discarded == ()
    assert (verified := job.master.reports.verify(deep=True)).unasked == verified.discarded == ()


def test_a_deleted_run_is_missing_with_its_chain(job: SparklessJob) -> None:
    newest = job.context.head().state.checkpoints[-1]
    run = job.context.metadata(newest).sources["rows"].consumed[-1]
    job.context.store.delete([run.key])
    report = job.master.reports.fsck()
    assert report.exit_code == 7
    assert [(item.key, item.chain[1]) for item in report.missing] == [(run.key, "retained checkpoint 2")]
