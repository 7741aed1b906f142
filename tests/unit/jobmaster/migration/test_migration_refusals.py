"""What no migration does: each is refused by name, typed, before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.errors import (
    Busy,
    EnvironmentUnusable,
    InvalidRequest,
    JobNotRunnable,
    NotFound,
    StateCorrupt,
    StoreUnavailable,
)
from milepost.jobmaster import Session
from milepost.protocol.manifest.transaction.requests import ForkRequest
from milepost.protocol.records.ids import NO_CHECKPOINT
from milepost.tables.records.table_address import CatalogAddress, TableAddress
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.migrating_job import MigratingJob, delta
from milepost_testkit.jobs.sparkless.saved_job import stored
from milepost_testkit.stores.job_stores import hook_stores

SQL = CatalogAddress("sql", "sqlite:///catalog.db", "milepost", {})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> MigratingJob:
    """Two epochs, more landed. Only to be copied."""
    job = MigratingJob.with_epochs(tmp_path_factory.mktemp("prepared") / "job", 2)
    job.land([3, 4])
    return job


@pytest.fixture
def job(prepared: MigratingJob, tmp_path: Path) -> MigratingJob:
    return prepared.copy_to(tmp_path / "job")


@pytest.mark.long
@pytest.mark.parametrize(
    "target",
    [
        TableAddress("delta", "../store/small/there"),
        TableAddress("delta", "../store/small"),
        TableAddress("delta", "../lake/table"),
        TableAddress("delta", "../lake/table/below"),
        TableAddress("delta", "../lake"),
        TableAddress("delta", "../lake/seen"),
        TableAddress("delta", "../lake/./x/../seen"),
        TableAddress("delta", "../landing"),
        TableAddress("iceberg", "../lake/ice"),
        TableAddress("iceberg", "../lake/ice", "noname", SQL),
        TableAddress("delta", "../lake/x", "a.b", SQL),
        TableAddress("iceberg", "../lake/ice", "a.b", replace(SQL, options={"token": "hunter2"})),
        TableAddress("iceberg", "../lake/ice", "a.b", replace(SQL, uri="postgresql://u:hunter2@h/d")),
    ],
    ids=lambda value: value if isinstance(value, str) else value.path,
)
def test_a_place_that_no_spec_may_name_is_refused(job: MigratingJob, target: TableAddress) -> None:
    before = stored(job.small.folder)
    with wording.raises(InvalidRequest) as refused:
        job.migrate("seen", target)
    assert "hunter2" not in str(refused.value)
    assert stored(job.small.folder) == before


def test_a_place_that_is_not_empty_or_anothers_is_refused(job: MigratingJob, tmp_path: Path) -> None:
    (job.lake("seen")).mkdir()
    (job.lake("seen") / "notes.txt").write_text("mine")
    with wording.raises(InvalidRequest):
        job.migrate("seen")
    job.migrate("seen", delta("seen", "second"))
    other = MigratingJob.with_epochs(tmp_path / "other", 1)
    target = TableAddress("delta", str(job.lake("seen", "second")))
    with wording.raises(InvalidRequest):
        other.migrate("seen", target)
    other.migrate("seen")
    with wording.raises(InvalidRequest):
        job.migrate("table", TableAddress("delta", str(other.lake("seen"))))


def test_an_open_table_does_not_become_one_of_our_own(job: MigratingJob) -> None:
    job.migrate("seen")
    with wording.raises(InvalidRequest):
        job.migrate("seen", TableAddress("parquet", "../lake/second"))


def test_while_an_epoch_is_pending_or_a_fork_is_open_nothing_is_migrated(job: MigratingJob) -> None:
    context, session = job.small.context, Session.cli()
    context.transact(ForkRequest(session.session_id, NO_CHECKPOINT))
    with wording.raises(Busy) as told:
        job.migrate("seen")
    assert "--dispose" in told.value.hint
    job.master.triggers.trigger(session)
    with wording.raises(Busy):
        job.migrate("seen")


def test_a_job_that_has_failed_or_ended_is_not_migrated(job: MigratingJob) -> None:
    job.master.savepoints.cancel()
    with wording.raises(JobNotRunnable):
        job.migrate("seen")


@pytest.mark.long
def test_a_checkpoint_that_a_sink_has_not_confirmed_is_published_first(
    job: MigratingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("sinks/table/marks/"):
            raise StoreUnavailable("planned outage")

    with monkeypatch.context() as outage:
        hook_stores(outage, before=down)
        with pytest.raises(StoreUnavailable):
            job.run()
    with wording.raises(JobNotRunnable):
        job.migrate("seen")
    job.run()
    job.migrate("seen")
    job.assert_whole()


def test_there_is_nothing_to_migrate_before_the_first_checkpoint(tmp_path: Path) -> None:
    job = MigratingJob.create(tmp_path / "job")
    with wording.raises(NotFound):
        job.migrate("seen")
    job.land([1])
    job.run()
    job.rollback(0)
    with wording.raises(InvalidRequest):
        job.migrate("seen")
    with wording.raises(NotFound):
        job.migrate("nothing")


def test_a_table_with_a_missing_file_is_refused_by_the_plan(job: MigratingJob) -> None:
    next((job.small.folder / "lake" / "seen" / "_milepost" / "data").rglob("*.parquet")).unlink()
    with wording.raises(StateCorrupt):
        job.master.migrations.plan("seen", delta("seen"))


def test_another_mode_or_key_in_the_spec_is_undone_first(job: MigratingJob) -> None:
    job.edit("path: ../lake/table, mode: upsert", "path: ../lake/table, mode: changelog")
    with wording.raises(InvalidRequest):
        job.migrate("table")


def test_a_missing_library_is_reported_before_anything_is_written(
    job: MigratingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.extras.find_spec", lambda name: None)
    before = stored(job.small.folder)
    with wording.raises(EnvironmentUnusable):
        job.migrate("seen")
    assert stored(job.small.folder) == before


def test_columns_that_the_format_cannot_hold_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    edit = {"schema: {k: int64, v: string}": 'schema: {k: int64, "v w": string}', "key: [k, v]": 'key: [k, "v w"]'}
    job = MigratingJob.create(tmp_path / "job", edit)
    job.small.land("1.csv", "k,v w\n1,a\n")
    job.run()
    before = stored(job.small.folder)
    with wording.raises(InvalidRequest):
        job.migrate("seen")
    assert stored(job.small.folder) == before
