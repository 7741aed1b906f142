"""What no migration does: each is refused by name, typed, before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.dataflow.sinks.records.table_address import CatalogAddress, TableAddress
from milepost.jobmaster.jobmaster import Session
from milepost.protocol.manifest.transaction.requests import ForkRequest
from milepost.protocol.records.errors import (
    Busy,
    EnvironmentUnusable,
    InvalidRequest,
    JobNotRunnable,
    NotFound,
    StateCorrupt,
    StoreUnavailable,
)
from milepost.protocol.records.ids import NO_CHECKPOINT
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


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (TableAddress("delta", "../store/small/there"), "lies inside that of the job's own folder"),
        (TableAddress("delta", "../store/small"), "is that of the job's own folder"),
        (TableAddress("delta", "../lake/table"), "is that of sink table"),
        (TableAddress("delta", "../lake/table/below"), "lies inside that of sink table"),
        (TableAddress("delta", "../lake"), "holds that of"),
        (TableAddress("delta", "../lake/seen"), "is that of sink seen, as it is or was"),
        (TableAddress("delta", "../lake/./x/../seen"), "is that of sink seen, as it is or was"),
        (TableAddress("delta", "../landing"), "is not empty: 0001.csv lies there"),
        (TableAddress("iceberg", "../lake/ice"), "format: iceberg needs `catalog`"),
        (TableAddress("iceberg", "../lake/ice", "noname", SQL), "table"),
        (TableAddress("delta", "../lake/x", "a.b", SQL), "is of format: iceberg; sink seen is delta"),
        (
            TableAddress("iceberg", "../lake/ice", "a.b", replace(SQL, options={"token": "hunter2"})),
            "a secret stands in no spec",
        ),
        (
            TableAddress("iceberg", "../lake/ice", "a.b", replace(SQL, uri="postgresql://u:hunter2@h/d")),
            "a secret stands in no spec",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.path,
)
def test_a_place_that_no_spec_may_name_is_refused(job: MigratingJob, target: TableAddress, why: str) -> None:
    before = stored(job.small.folder)
    with pytest.raises(InvalidRequest) as refused:
        job.migrate("seen", target)
    assert why in refused.value.message and "Nothing was changed" in refused.value.message
    assert "hunter2" not in str(refused.value)
    assert stored(job.small.folder) == before


def test_a_place_that_is_not_empty_or_anothers_is_refused(job: MigratingJob, tmp_path: Path) -> None:
    (job.lake("seen")).mkdir()
    (job.lake("seen") / "notes.txt").write_text("mine")
    with pytest.raises(InvalidRequest, match=r"is not empty: notes.txt lies there"):
        job.migrate("seen")
    job.migrate("seen", delta("seen", "second"))
    other = MigratingJob.with_epochs(tmp_path / "other", 1)
    target = TableAddress("delta", str(job.lake("seen", "second")))
    with pytest.raises(InvalidRequest, match="is reserved for sink seen of job small"):
        other.migrate("seen", target)
    other.migrate("seen")
    with pytest.raises(InvalidRequest, match="is reserved for sink seen of job small"):
        job.migrate("table", TableAddress("delta", str(other.lake("seen"))))


def test_an_open_table_does_not_become_one_of_our_own(job: MigratingJob) -> None:
    job.migrate("seen")
    with pytest.raises(InvalidRequest, match="a table of format: delta does not go to format: parquet"):
        job.migrate("seen", TableAddress("parquet", "../lake/second"))


def test_while_an_epoch_is_pending_or_a_fork_is_open_nothing_is_migrated(job: MigratingJob) -> None:
    context, session = job.small.context, Session.cli()
    context.transact(ForkRequest(session.session_id, NO_CHECKPOINT))
    with pytest.raises(Busy, match="forks are open: t") as told:
        job.migrate("seen")
    assert "--dispose" in told.value.hint
    job.master.trigger(session)
    with pytest.raises(Busy, match="checkpoint 3 is pending"):
        job.migrate("seen")


def test_a_job_that_has_failed_or_ended_is_not_migrated(job: MigratingJob) -> None:
    job.master.cancel()
    with pytest.raises(JobNotRunnable, match="is CANCELED"):
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
    with pytest.raises(JobNotRunnable, match="completed checkpoints wait for sinks table"):
        job.migrate("seen")
    job.run()
    job.migrate("seen")
    job.assert_whole()


def test_there_is_nothing_to_migrate_before_the_first_checkpoint(tmp_path: Path) -> None:
    job = MigratingJob.create(tmp_path / "job")
    with pytest.raises(NotFound, match="has no checkpoint yet"):
        job.migrate("seen")
    job.land([1])
    job.run()
    job.rollback(0)
    with pytest.raises(InvalidRequest, match="at checkpoint 0, the head of job small, it has no table yet"):
        job.migrate("seen")
    with pytest.raises(NotFound, match="has no sink nothing"):
        job.migrate("nothing")


def test_a_table_of_which_a_file_is_gone_is_refused_by_the_plan(job: MigratingJob) -> None:
    next((job.small.folder / "lake" / "seen" / "_milepost" / "data").rglob("*.parquet")).unlink()
    with pytest.raises(StateCorrupt, match="is missing"):
        job.master.plan_migration("seen", delta("seen"))


def test_another_mode_or_key_in_the_spec_is_undone_first(job: MigratingJob) -> None:
    job.edit("path: ../lake/table, mode: upsert", "path: ../lake/table, mode: changelog")
    with pytest.raises(InvalidRequest, match=r"mode upsert and key \['k'\], the spec says mode changelog") as told:
        job.migrate("table")
    assert "undo the change" in told.value.hint


def test_a_library_that_is_not_installed_is_asked_for_before_anything_is_written(
    job: MigratingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.extras.find_spec", lambda name: None)
    before = stored(job.small.folder)
    with pytest.raises(EnvironmentUnusable, match="delta"):
        job.migrate("seen")
    assert stored(job.small.folder) == before


def test_columns_that_the_format_cannot_hold_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    edit = {"schema: {k: int64, v: string}": 'schema: {k: int64, "v w": string}', "key: [k, v]": 'key: [k, "v w"]'}
    job = MigratingJob.create(tmp_path / "job", edit)
    job.small.land("1.csv", "k,v w\n1,a\n")
    job.run()
    before = stored(job.small.folder)
    with pytest.raises(InvalidRequest, match="column 'v w'"):
        job.migrate("seen")
    assert stored(job.small.folder) == before
