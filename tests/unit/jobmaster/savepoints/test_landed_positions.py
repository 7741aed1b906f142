"""A savepoint has the positions of landed sources, and a job that has their logs continues in them (L9)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.errors import InvalidRequest, SourceReplaced, StateCorrupt
from milepost.jobmaster import NothingToDo
from milepost.protocol.landed.records import encode_record
from milepost.protocol.records.layout import landed_record_key
from milepost.storage.log.source_log import SourceLog
from milepost.tables.records.table_address import TableAddress
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.landed_job import LandedJob


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    """Two epochs, a savepoint after each, and rows that are landed and not processed."""
    job = LandedJob.create(tmp_path / "job")
    for name, rows in (("first", (1, 2)), ("second", (3, 3, 1))):
        job.land_and_run(*rows)
        job.master.savepoints.create(name)
    job.produce(4)
    job.land()
    return job


def run_all(job: LandedJob) -> None:
    while not isinstance(job.epoch(), NothingToDo):
        pass


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def made_anew(job: LandedJob) -> None:
    """Delete the job and its tables, but not the log of its source."""
    store = job.context.store
    store.delete([stat.key for stat in store.list("") if not stat.key.startswith("landed/")])
    shutil.rmtree(job.folder / "lake")


@pytest.mark.deep
@pytest.mark.parametrize(("savepoint", "rows"), [("first", 2), ("second", 5)])
def test_a_restore_into_the_same_job_goes_on_in_its_log_although_the_external_system_is_empty(
    job: LandedJob, savepoint: str, rows: int
) -> None:
    assert job.left == 0
    job.master.savepoints.cancel()
    job.master.restores.start(savepoint)
    job.assert_tables(rows)
    run_all(job)
    job.assert_tables(6)
    assert job.master.reports.fsck().exit_code == 0


@pytest.mark.long
def test_a_job_that_was_canceled_with_a_savepoint_starts_from_it_and_goes_on_in_its_log(job: LandedJob) -> None:
    job.master.savepoints.dispose("second")
    ended = job.master.savepoints.cancel(savepoint=True)
    assert ended.savepoint is not None
    job.master.restores.start(str(ended.savepoint.name), claim=True)
    job.produce(5)
    assert not job.land().failed
    run_all(job)
    job.assert_tables(7)


@pytest.mark.long
def test_a_savepoint_that_is_stored_elsewhere_is_restored_into_its_own_job(job: LandedJob, tmp_path: Path) -> None:
    job.master.savepoints.create("outside", target=str(tmp_path / "outside"))
    job.master.savepoints.export(1, str(tmp_path / "export"))
    job.master.savepoints.cancel()
    job.master.restores.start(str(tmp_path / "export"))
    job.assert_tables(2)
    run_all(job)
    job.assert_tables(6)


def test_a_job_that_was_made_anew_over_an_old_log_does_not_continue_it(job: LandedJob, tmp_path: Path) -> None:
    job.master.savepoints.export(2, str(tmp_path / "export"))
    made_anew(job)
    with pytest.raises(InvalidRequest, match="another log of that source"):
        job.master.restores.start(str(tmp_path / "export"))
    (failed,) = job.land().failed
    assert failed.error == "SourceReplaced"
    with pytest.raises(SourceReplaced, match="its log is of an earlier life of the job"):
        job.master.restores.start(str(tmp_path / "export"))


def test_an_epoch_of_a_job_that_was_made_anew_does_not_read_the_old_log(job: LandedJob) -> None:
    made_anew(job)
    log = contents(job.folder / "store" / "landed" / "landed")
    (failed,) = job.land().failed
    with wording.raises(SourceReplaced) as refused:
        job.epoch()
    assert refused.value.message == failed.message
    now = contents(job.folder / "store" / "landed" / "landed")
    assert now.pop("feed/failure.json") and now == log
    assert "earlier life" in (job.master.reports.status().source_changed or "")


@pytest.mark.deep
def test_after_the_old_log_is_moved_away_a_job_that_was_made_anew_begins_a_log_of_its_own(job: LandedJob) -> None:
    made_anew(job)
    job.land()
    (job.folder / "store" / "landed" / "landed" / "feed").rename(job.folder / "old log")
    job.produce(7)
    assert not job.land().failed
    result = job.epoch()
    assert not isinstance(result, NothingToDo)
    assert job.master.reports.read("rows")["k"].to_pylist() == [7]


def test_fsck_names_the_savepoint_whose_position_is_no_longer_on_the_log(job: LandedJob) -> None:
    log = SourceLog(job.context.store, "feed")
    record = log.record(2).record
    job.context.store.put(landed_record_key("feed", 2), encode_record(replace(record, landed_at_ms=1)))
    audit = job.master.reports.fsck()
    assert audit.exit_code == 7 and "does not follow" in audit.damaged[0]
    for sequence in (4, 3):
        job.context.store.delete([landed_record_key("feed", sequence)])
    faults = job.master.reports.fsck().damaged
    assert [fault.partition(":")[0] for fault in faults] == [
        "checkpoint 1",
        "checkpoint 2",
        "savepoint first",
        "savepoint second",
    ]


def test_verify_checks_that_the_positions_of_a_checkpoint_are_on_the_log(job: LandedJob) -> None:
    whole = job.master.reports.verify()
    job.context.store.delete([landed_record_key("feed", 3)])
    with wording.raises(StateCorrupt) as damaged:
        job.master.reports.verify()
    assert "source feed: record 3 of log" in damaged.value.message
    assert job.master.reports.verify(1).checkpoints == (1,), "the first checkpoint had not read it"
    assert len(whole.checkpoints) == 2


@pytest.mark.deep
def test_a_deep_verification_reads_every_object_of_the_log(job: LandedJob) -> None:
    deep, flat = job.master.reports.verify(deep=True), job.master.reports.verify()
    store = job.context.store
    objects = sorted(stat.key for stat in store.list("landed/feed/objects/"))
    assert deep.objects == flat.objects + len(objects) + 4, "and its four records"
    body = store.get(objects[-1])  # no epoch has read it yet
    store.put(objects[-1], bytes([body[0] ^ 1]) + body[1:])
    assert job.master.reports.fsck().exit_code == 0, "its size is right"
    job.master.reports.verify()
    with pytest.raises(StateCorrupt, match=f"source feed: object '{objects[-1]}'"):
        job.master.reports.verify(deep=True)


@pytest.mark.deep
def test_a_migrated_table_keeps_the_positions_and_the_next_epoch_goes_on_from_them(job: LandedJob) -> None:
    before = job.position()
    job.master.migrations.run(job.master.migrations.plan("rows", TableAddress("delta", "../lake/rows-delta")))
    assert job.position() == before
    spec = job.folder / "config" / "landed.yaml"
    spec.write_text(
        spec.read_text().replace("format: parquet, path: ../lake/rows,", "format: delta, path: ../lake/rows-delta,")
    )
    run_all(job)
    job.assert_tables(6)
