"""A table that was moved shows the job's head again, once a person has decided so (TABLES 1.8, I14)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from milepost.errors import Busy, CheckpointError, InvalidRequest, StateCorrupt, StoreUnavailable
from milepost.jobmaster import NothingToDo, Session
from milepost.protocol.records.checkpoints import CompletedCheckpoint, ObjectHandle
from milepost.tables.records.reservation import RESERVATION
from milepost.tables.records.table_heads import HEADS
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.stores.job_stores import hook_stores

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Five epochs. Only to be copied."""
    job = CountedJob.with_epochs(tmp_path_factory.mktemp("prepared") / "job", 5)
    job.land([6, 7])
    return job


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


def table(job: CountedJob) -> Path:
    return job.small.folder / "lake" / "seen"


def restore_older_state(job: CountedJob, heads: int = 2) -> None:
    """As after a failover: the newest commits of the table are lost."""
    for head in sorted((table(job) / HEADS).iterdir())[:heads]:
        head.unlink()


@pytest.mark.deep
def test_a_table_reset_by_a_failover_is_refused_and_realigned(job: CountedJob) -> None:
    restore_older_state(job)
    with wording.raises(InvalidRequest):
        job.run_one()
    plan = job.master.realignments.plan("seen")
    assert (plan.head, plan.rows_now, plan.rows_then) == (5, 9, 15)
    done = job.master.realignments.run(Session.cli(), plan)
    assert (done.outcome, done.next_step) == ("realigned", "milepost resume small")
    job.master.lifecycle.resume()
    assert (
        job.master.realignments.run(Session.cli(), job.master.realignments.plan("seen")).outcome == "nothing_to_realign"
    )
    job.run()
    job.assert_tables_equal_the_oracle()
    assert job.master.reports.fsck().exit_code == 0


@pytest.mark.deep
def test_the_row_count_of_a_table_changed_by_another_engine_is_unknown(tmp_path: Path) -> None:
    """It reported `9 -> 9 rows` for a table after a DELETE of all rows, as what the job had left there."""
    delta = {"format: parquet, path: ../lake/seen": "format: delta, path: ../lake/seen"}
    job = CountedJob.with_epochs(tmp_path / "job", 3, delta)
    DeltaTable(str(table(job))).delete()
    plan = job.master.realignments.plan("seen")
    assert (plan.rows_now, plan.rows_then) == (None, 9)
    wording.matches("plan", plan.text[0])
    wording.matches("plan", plan.text[1])


def test_a_table_with_an_unknown_mark_is_realigned(job: CountedJob) -> None:
    """The record was lost with another copy of the storage: it is unknown what the table shows."""
    store = job.small.context.store
    store.delete([stat.key for stat in store.list("sinks/seen/")])
    with wording.raises(InvalidRequest):
        job.run_one()
    with wording.raises(InvalidRequest):
        job.master.reports.read("seen")
    plan = job.master.realignments.plan("seen")
    assert plan.rows_now is None
    job.master.realignments.run(Session.cli(), plan)
    job.master.lifecycle.resume()
    job.run()
    job.assert_tables_equal_the_oracle()


@pytest.mark.parametrize("form", [pytest.param("parquet", marks=pytest.mark.deep), "delta"])
def test_a_job_whose_storage_was_restored_takes_its_tables_back(tmp_path: Path, form: str) -> None:
    """They carry numbers above all that this manifest has reached: a person decides that it counts all the same."""
    in_form = {f"parquet, path: ../lake/{sink}": f"{form}, path: ../lake/{sink}" for sink in ("seen", "table")}
    job = CountedJob.with_epochs(tmp_path / "job", 2, in_form)
    store = job.small.folder / "store"
    shutil.copytree(store, tmp_path / "backup")
    job.land([3, 4, 5])
    job.run(3)
    shutil.rmtree(store)
    shutil.copytree(tmp_path / "backup", store)
    with wording.raises(InvalidRequest):
        job.run_one()
    for sink in ("seen", "table"):
        done = job.master.realignments.run(Session.cli(), job.master.realignments.plan(sink))
        assert done.outcome == "realigned"
    job.assert_tables_equal_the_oracle()
    job.master.lifecycle.resume()
    job.run(3)
    job.assert_tables_equal_the_oracle()
    job.rollback(2)
    job.assert_tables_equal_the_oracle()
    assert job.master.reports.fsck().exit_code == 0


@pytest.mark.deep
def test_a_table_that_was_deleted_is_made_anew_by_a_rollback_to_the_beginning(job: CountedJob) -> None:
    """Its files were deleted, so no decision restores them; every message names the recovery."""
    shutil.rmtree(table(job))
    with wording.raises(InvalidRequest):
        job.run_one()
    with wording.raises(StateCorrupt):
        job.master.realignments.plan("seen")
    job.rollback(0)
    job.run()
    job.assert_tables_equal_the_oracle()


def test_a_table_whose_log_was_deleted_is_built_from_the_files_that_are_there(job: CountedJob) -> None:
    shutil.rmtree(table(job) / HEADS)
    (table(job) / RESERVATION).unlink()
    assert job.master.realignments.run(Session.cli(), job.master.realignments.plan("seen")).checkpoint_id == 5
    job.run()
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_a_table_that_cannot_follow_a_rollback_is_realigned_by_the_command_that_it_names(job: CountedJob) -> None:
    """The realignment takes over what the rollback left to do: else neither could ever be carried out."""
    store = job.small.context.store
    store.delete([stat.key for stat in store.list("sinks/seen/")])
    with wording.raises(InvalidRequest):
        job.rollback(3)
    plan = job.master.realignments.plan("seen")
    assert plan.head == 3
    assert job.master.realignments.run(Session.cli(), plan).outcome == "realigned"
    assert job.master.reports.status().reconciling == ()
    job.run()
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_a_restored_state_whose_records_are_collected_is_realigned(job: CountedJob) -> None:
    """Its mark is known, but what the mark lists can no longer be read."""
    restore_older_state(job, heads=4)
    store, context = job.small.context.store, job.small.context
    shown = context.sink("seen").position().contents
    assert shown is not None and shown.checkpoint_id == 1
    kept = {one.key for checkpoint in context.head().state.checkpoints[1:] for one in records(job, checkpoint)}
    store.delete([one.key for one in shown.records if one.key not in kept])
    job.master.realignments.run(Session.cli(), job.master.realignments.plan("seen"))
    job.run()
    job.assert_tables_equal_the_oracle("seen")


def records(job: CountedJob, checkpoint: CompletedCheckpoint) -> tuple[ObjectHandle, ...]:
    return job.small.context.metadata(checkpoint).tables["seen"].records


def test_a_realignment_is_refused_while_an_epoch_runs(job: CountedJob) -> None:
    restore_older_state(job)
    plan = job.master.realignments.plan("seen")
    assert not isinstance(job.master.triggers.trigger(Session.cli()), NothingToDo)
    with pytest.raises(Busy):
        job.master.realignments.run(Session.cli(), plan)


def test_a_sink_that_is_down_is_realigned_by_the_next_run_before_anything_else(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision stands; what the other sinks have yet to confirm stays due."""
    restore_older_state(job)

    def down(operation: str, key: str) -> None:
        if operation == "create" and key.startswith(HEADS):
            raise StoreUnavailable("planned outage")

    plan = job.master.realignments.plan("seen")
    with monkeypatch.context() as outage:
        hook_stores(outage, before=down)
        with wording.raises(CheckpointError):
            job.master.realignments.run(Session.cli(), plan)
    assert job.master.reports.status().reconciling == ("seen",)
    job.run()
    job.assert_tables_equal_the_oracle()
    events = [entry["event"] for entry in job.master.reports.history()]
    assert events.count("RealignmentDecided") == 1


def test_the_command_shows_the_plan_prompts_and_names_the_next_step(job: CountedJob) -> None:
    restore_older_state(job)
    spec = str(job.spec_path)
    shown = milepost("realign", spec, "seen", "--dry-run")
    assert shown.exit_code == 0, shown.output
    wording.matches("realign", shown.stdout)
    done = milepost("realign", spec, "seen", "--yes")
    wording.matches("realign", done.stdout)
    again = milepost("realign", spec, "seen", "--yes")
    assert again.exit_code == 0
    wording.matches("realign", again.stdout)
    assert milepost("realign", spec, "nowhere", "--yes").exit_code == 3
