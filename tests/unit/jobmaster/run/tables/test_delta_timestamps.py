"""A Delta table with a timestamp that has no zone outlives every change of a job that sets the table's properties."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from milepost.jobmaster import Session
from milepost.sinks.formats.delta.delta_log import JobCommit
from milepost.tables.delta.retentions import FILE_RETENTION
from milepost_testkit.jobs.sparkless.saved_job import OtherJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.readers.reading_engines import ENGINES, ReadingEngines
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec

pytestmark = pytest.mark.long

NEVER_HAD = "variantType"
SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us"))])
SEEN = "{name: seen, input: unique, format: delta, path: ../lake/seen, mode: append}"
TIMES = {
    "schema: {k: int64, v: string}": "schema: {k: int64, at: 'timestamp[us]'}",
    "sinks:\n": f"  - {{uid: unique, kind: deduplicate, inputs: [rows], key: [k]}}\nsinks:\n  - {SEEN}\n",
}


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    """A job of two epochs, with another landed."""
    job = SparklessJob.create(tmp_path / "job", TIMES)
    land(job, 1, 2, 3)
    run(job, 2)
    return job


def land(job: SparklessJob, *numbers: int) -> None:
    for n in numbers:
        job.land(f"{n}.csv", f"k,at\n{n},2026-11-{n:02} 10:00:00\n")


def run(job: SparklessJob, epochs: int = 1) -> None:
    for _ in range(epochs):
        job.master.epochs.run(Session.cli(), SparklessRunner())


def seen(job: SparklessJob) -> DeltaTable:
    return DeltaTable(job.folder / "lake" / "seen")


def spec_of(job: SparklessJob) -> Path:
    return job.folder / "config" / "small.yaml"


def assert_readable_with(job: SparklessJob, epochs: int) -> None:
    """The table's protocol is the one that it had, and it shows what so many epochs wrote."""
    assert seen(job).protocol().reader_features == ["timestampNtz"]
    assert NEVER_HAD not in (seen(job).protocol().writer_features or [])
    assert sorted(pa.table(seen(job).to_pyarrow_table())["k"].to_pylist()) == list(range(1, epochs + 1))


@pytest.mark.deep
@pytest.mark.parametrize(
    "change", [{"{last: 1}": "{last: 1, daily: 90}"}, {"timeout: 10m": "timeout: 400h"}], ids=["retained", "timeout"]
)
def test_a_job_that_retains_longer_goes_on_and_so_do_readers(
    job: SparklessJob, change: dict[str, str], reading_engines: ReadingEngines
) -> None:
    """A longer retention is raised in the table's properties; the library's call for that also changes its protocol."""
    before = seen(job).metadata().configuration[FILE_RETENTION]
    edit_spec(spec_of(job), change)
    run(job)
    assert seen(job).metadata().configuration[FILE_RETENTION] != before
    assert_readable_with(job, 3)
    land(job, 4)
    run(job)
    assert_readable_with(job, 4)
    assert (verified := job.master.reports.verify(deep=True)).unasked == verified.discarded == ()
    for engine in ENGINES:
        found = reading_engines.read(engine, job.folder / "lake" / "seen")
        assert sorted(found.column("k").to_pylist()) == [1, 2, 3, 4], engine


def test_a_table_with_timestamps_is_adopted_as_it_is(tmp_path: Path) -> None:
    """`adopt: true` sets an owner; readers of the table that read it before read it after."""
    write_deltalake(tmp_path / "job" / "lake" / "seen", SCHEMA.empty_table())
    adopting = {key: text.replace("mode: append", "mode: append, adopt: true") for key, text in TIMES.items()}
    job = SparklessJob.create(tmp_path / "job", adopting)
    before = seen(job).protocol()
    land(job, 1, 2)
    run(job, 2)
    assert seen(job).protocol() == before
    assert_readable_with(job, 2)


@pytest.mark.deep
def test_a_table_with_timestamps_is_taken_over_as_it_is(job: SparklessJob) -> None:
    """`start --from … --claim` sets another owner."""
    run(job)
    canceled = job.master.savepoints.cancel(savepoint="final")
    assert canceled.savepoint is not None
    text = spec_of(job).read_text().replace("name: small", "name: other")
    heir = OtherJob(job.folder)
    heir.spec_path.write_text(text)
    heir.master.restores.start(canceled.savepoint.location, claim=True)
    assert_readable_with(job, 3)
    land(job, 4)
    heir.run(1)
    assert_readable_with(job, 4)


@pytest.mark.deep
def test_a_table_that_an_earlier_version_changed_is_freed_by_the_next_epoch(job: SparklessJob) -> None:
    """Every epoch was refused, a rollback did not help, and readers without `variantType` refused the table."""
    owner = job.context.sink("seen").owner()
    assert owner is not None
    seen(job).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 90 days"},
        commit_properties=CommitProperties(JobCommit(owner.identity, owner.sink).as_metadata()),
    )
    assert NEVER_HAD in (seen(job).protocol().reader_features or [])
    run(job)
    assert_readable_with(job, 3)
    land(job, 4)
    run(job)
    assert_readable_with(job, 4)
