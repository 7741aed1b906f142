"""A machine or service that cannot be used: exit 8, nothing lost, nothing counted against the job; then as if never."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost, milepost_process
from milepost_testkit.jobs.flights.flights import day_key
from milepost_testkit.jobs.flights.flights_job import FLIGHTS_SPEC, FlightsJob
from milepost_testkit.jobs.flights.recovering_job import RecoveringJob, quality_section
from milepost_testkit.servers.s3_servers import Seaweed
from milepost_testkit.stores.full_disk import no_room, python_workers, spark_jvm

LESS_THAN_AN_ENTRY = 12_000
"""Bytes: more than any file that is stored of an epoch has, and less than the largest entry of the cache."""

LITTLE_MEMORY = 10_000
"""Bytes: less than a task of an epoch holds."""


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> FlightsJob:
    """A job with one completed epoch, to be copied. Its Spark and the Python workers live on."""
    return RecoveringJob.healthy(tmp_path_factory.mktemp("healthy") / "job", on_spark=True).job


@pytest.fixture
def recovering(healthy: FlightsJob, tmp_path: Path) -> RecoveringJob:
    """A copy of the healthy job, with new input landed: days 3 and 4."""
    return RecoveringJob.copy_of(healthy, tmp_path / "a job")


FIRST_FAILURE = wording.FIRST_DECLINE | {
    r"object '[^']*' \(\d+ bytes\)": "object {object}",
    r"operator \w+(?: \(level \d+, subtask \d+\)|: snapshot)?: ": "operator {operator}: ",
    r"(?<=[: ])/\S*(?= cannot (?:store|take) )": "{folder}",
}
"""Which object, subtask or folder meets the full disk first differs between runs."""


def sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file()]


@pytest.mark.deep
def test_a_disk_that_is_full_before_anything_is_planned_refuses_the_run_and_loses_nothing(
    recovering: RecoveringJob,
) -> None:
    job = recovering.job
    with no_room([psutil.Process()], 16):
        outcome = milepost("run", job.spec_path)
    assert_clear_error(outcome, 8, str(job.folder / "store"), golden="run", replace=FIRST_FAILURE)
    recovering.assert_nothing_happened(aborted=None)
    recovering.recover(failed=False)


def test_a_disk_that_does_not_take_what_tasks_are_to_do_is_named_and_loses_nothing(recovering: RecoveringJob) -> None:
    with no_room([psutil.Process()], 4_000):
        outcome = milepost("run", recovering.job.spec_path)
    assert_clear_error(outcome, 8, "spark.local.dir", golden="run", replace=FIRST_FAILURE)
    recovering.assert_nothing_happened(aborted="ENVIRONMENT_UNUSABLE")
    recovering.recover(failed=False)


@pytest.mark.deep
def test_a_disk_that_fills_while_subtasks_write_is_a_decline_and_no_failure_of_the_job(
    recovering: RecoveringJob,
) -> None:
    """A subtask declines: no worker dies, and the reason does not count as a failure of the job."""
    job = recovering.job
    with no_room(python_workers(), 1_000):
        outcome = milepost("run", job.spec_path)
    assert_clear_error(outcome, 8, "ENVIRONMENT_UNUSABLE", golden="run", replace=FIRST_FAILURE)
    recovering.assert_nothing_happened(aborted="ENVIRONMENT_UNUSABLE")
    recovering.recover(failed=False)


@pytest.mark.deep
def test_a_disk_that_takes_no_more_of_the_cache_costs_a_read_of_the_store_and_nothing_else(
    recovering: RecoveringJob,
) -> None:
    """The epoch goes on: what the next one finds in no cache, it reads in the store, and caches once there is room."""
    job = recovering.job
    cache = Path(job.master().context.cache_directory)
    with no_room(python_workers(), LESS_THAN_AN_ENTRY):
        assert milepost("run", job.spec_path).exit_code == 0
    assert 0 < max(sizes(cache)) < LESS_THAN_AN_ENTRY, "smaller entries were taken, and nothing is left of others"
    job.assert_tables_equal_the_oracle()
    job.land([5])
    assert milepost("run", job.spec_path).exit_code == 0
    assert max(sizes(cache)) > LESS_THAN_AN_ENTRY
    job.assert_tables_equal_the_oracle()
    assert job.master().reports.verify(deep=True).discarded == ()


@pytest.mark.deep
def test_a_disk_that_takes_no_more_of_what_a_task_cannot_hold_in_memory_is_a_decline(
    recovering: RecoveringJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subtask declines, and no worker dies; with room the next run spills as much and is right."""
    monkeypatch.setattr("milepost.spark.driver.runner.budget_bytes", lambda limit_bytes: LITTLE_MEMORY)
    with no_room(python_workers(), 1_000):
        outcome = milepost("run", recovering.job.spec_path)
    assert_clear_error(outcome, 8, "ENVIRONMENT_UNUSABLE", "MILEPOST_CACHE_DIR", golden="run", replace=FIRST_FAILURE)
    recovering.assert_nothing_happened(aborted="ENVIRONMENT_UNUSABLE")
    recovering.recover(failed=False)


def test_a_disk_that_fills_with_what_spark_shuffles_is_no_failure_of_the_job(recovering: RecoveringJob) -> None:
    """Spark gives the job up after some tries; no failure of the job, and the next run has what it needs."""
    with no_room(spark_jvm(), 200):
        outcome = milepost("run", recovering.job.spec_path)
    assert_clear_error(outcome, 8, "File too large", "spark.local.dir", golden="run", replace=FIRST_FAILURE)
    recovering.assert_nothing_happened(aborted="ENVIRONMENT_UNUSABLE")
    recovering.recover(failed=False, on_spark=True)


@pytest.mark.deep
def test_a_disk_that_fills_before_the_commit_point_leaves_nothing_complete(recovering: RecoveringJob) -> None:
    """All subtasks have acknowledged; `_metadata` cannot be written, so nothing is complete."""
    job = recovering.job
    (metadata,) = (path.stat().st_size for path in (job.folder / "store").rglob("_metadata"))
    with no_room([psutil.Process()], metadata * 3 // 4):
        outcome = milepost("run", job.spec_path)
    assert_clear_error(outcome, 8, "_metadata", golden="run", replace=FIRST_FAILURE)
    recovering.assert_nothing_happened(aborted="ENVIRONMENT_UNUSABLE")
    recovering.recover(failed=False)


@dataclass(frozen=True)
class S3Job(FlightsJob):
    """The flights job with its three buckets on a server."""

    endpoint_url: str
    buckets: dict[str, str]

    @property
    def landing(self) -> ObjectStore:
        return open_store(StoreConfig(f"s3://{self.buckets['landing']}", self.endpoint_url))

    def write_spec(self, **other_buckets: str) -> None:
        """Write the spec; a bucket may be replaced by another one."""
        buckets = self.buckets | other_buckets
        edit = {f"s3://{name}": f"s3://{bucket}" for name, bucket in buckets.items()}
        self.spec_path.parent.mkdir(parents=True, exist_ok=True)
        self.edit(FLIGHTS_SPEC.read_text(), edit | {"max_files: 4": "max_files: 2", quality_section(): ""})


@pytest.fixture
def s3_job(seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Job:
    """The job on a server that checks signatures; this process has its credentials."""
    for name, value in {**seaweed.environment(), "MILEPOST_S3_ENDPOINT": seaweed.endpoint_url}.items():
        monkeypatch.setenv(name, value)
    buckets = {name: seaweed.new_bucket() for name in ("milepost", "landing", "lake")}
    job = S3Job(tmp_path / "job", seaweed.endpoint_url, buckets)
    job.write_spec()
    return job


@pytest.mark.deep
def test_wrong_credentials_and_missing_buckets_lose_nothing(s3_job: S3Job, seaweed: Seaweed) -> None:
    """Each epoch that works is a process of its own: its workers take their credentials from their environment."""
    job = s3_job
    job.land([1, 2])
    assert milepost_process("run", job.spec_path).exit_code == 0
    before = milepost("history", job.spec_path, "--json").document()
    job.land([3, 4])
    with environment(AWS_SECRET_ACCESS_KEY="wrong" * 8):
        outcome = milepost("run", job.spec_path)
        assert_clear_error(outcome, 8, job.buckets["milepost"], golden="run")
        assert "wrong" not in outcome.stderr
    with environment(AWS_ACCESS_KEY_ID="nobody"):
        assert_clear_error(milepost("run", job.spec_path), 8, golden="run")
    with environment(remove=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), AWS_EC2_METADATA_DISABLED="true"):
        assert_clear_error(milepost("run", job.spec_path), 8, golden="run")
    job.write_spec(milepost="no-such-storage")
    assert_clear_error(milepost("run", job.spec_path), 8, "'no-such-storage'", golden="run")
    job.write_spec()
    landing = job.buckets["landing"]
    for day in (1, 2, 3, 4):
        seaweed.client.delete_object(Bucket=landing, Key=day_key(day))
    seaweed.client.delete_bucket(Bucket=landing)
    assert_clear_error(milepost("run", job.spec_path), 8, landing, golden="run")
    seaweed.client.create_bucket(Bucket=landing)
    job.land([1, 2, 3, 4])
    assert milepost("history", job.spec_path, "--json").document() == before
    assert milepost_process("run", job.spec_path).exit_code == 0
    assert job.epochs() == [[day_key(1), day_key(2)], [day_key(3), day_key(4)]]
    job.assert_tables_equal_the_oracle()


@contextmanager
def environment(*, remove: Iterable[str] = (), **changes: str) -> Iterator[None]:
    """Other variables while the block runs."""
    with pytest.MonkeyPatch.context() as patch:
        for name in remove:
            patch.delenv(name, raising=name in os.environ)
        for name, value in changes.items():
            patch.setenv(name, value)
        yield
