"""A sink's table goes to another format as one more checkpoint: forward, back, and with all that reads it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from milepost.errors import Busy, InvalidRequest, PlanOutdated, StoreUnavailable
from milepost.jobmaster import Session
from milepost.jobmaster.compatibility.advice import advice
from milepost.jobmaster.rollback.plan import SinkRollback
from milepost.tables.records.table_address import CatalogAddress, TableAddress
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import SEEN_SINK
from milepost_testkit.jobs.sparkless.migrating_job import COLUMNS, SINKS, MigratingJob, delta, iceberg
from milepost_testkit.jobs.sparkless.saved_job import OtherJob
from milepost_testkit.readers.reading_engines import ENGINES, CatalogTable, ReadingEngines
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.job_stores import hook_stores

pytestmark = pytest.mark.long

EPOCHS = 5


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> MigratingJob:
    """Five epochs, more landed. Only to be copied."""
    job = MigratingJob.with_epochs(tmp_path_factory.mktemp("prepared") / "job", EPOCHS)
    job.land(range(EPOCHS + 1, 15))
    return job


@pytest.fixture
def job(prepared: MigratingJob, tmp_path: Path) -> MigratingJob:
    return prepared.copy_to(tmp_path / "job")


@pytest.mark.deep
def test_tables_of_both_modes_go_on_as_delta_and_engines_read_them(
    job: MigratingJob, reading_engines: ReadingEngines
) -> None:
    for number, sink in enumerate(SINKS, 1):
        done = job.migrate(sink)
        assert (done.outcome, done.checkpoint_id) == ("migrated", EPOCHS + number)
        assert done.spec_lines == ("format: delta", f"path: ../lake/delta-{sink}")
    job.assert_engines_agree(reading_engines)
    job.assert_whole()
    for sink in SINKS:
        job.say(sink)
    job.run()
    job.assert_engines_agree(reading_engines)
    job.assert_whole()


@pytest.mark.deep
def test_a_table_goes_on_as_iceberg(job: MigratingJob, reading_engines: ReadingEngines) -> None:
    def assert_engines_agree() -> None:
        expected = job.expected()
        for sink in SINKS:
            table = CatalogTable(f"{job.small.folder}/catalog.db", f"small.{sink}")
            for engine in ENGINES:
                read = reading_engines.read(engine, table, table_format="iceberg").select(COLUMNS[sink])
                assert_same_rows(read, expected[sink], f"{sink} by {engine}")

    for sink in SINKS:
        target = iceberg(job.small.folder, sink)
        job.migrate(sink, target)
        job.say(sink, target)
    assert_engines_agree()
    job.run(2)
    assert_engines_agree()
    job.assert_whole()
    job.rollback(4)
    job.assert_whole()


def test_an_epoch_with_the_old_lines_in_the_spec_is_refused_with_the_lines_to_write(job: MigratingJob) -> None:
    job.migrate("seen")
    version = job.small.context.head().state.version
    with wording.raises(InvalidRequest) as told:
        job.run_one()
    assert "migrate-table" not in told.value.hint, "a table in Delta does not become one of our own"
    assert job.small.context.head().state.version == version, "nothing was planned"
    refused = {row["name"]: row for row in job.master.reports.compatibility() if row["outcome"] == "refused"}
    assert list(refused) == ["seen"]
    wording.matches("compatibility", refused["seen"]["detail"])


@pytest.mark.parametrize("place", [delta, iceberg], ids=["delta", "iceberg"])
def test_a_spec_that_runs_ahead_of_a_migration_is_refused_with_steps_that_work_when_typed(
    job: MigratingJob, place: Callable[..., TableAddress]
) -> None:
    """The spec names the new table before `migrate-table` made it: each message says what to write, and then type."""
    there = place("seen") if place is delta else place(job.small.folder, "seen")
    before = job.small.context.sink_address("seen")
    job.say("seen", there)
    with wording.raises(InvalidRequest) as refused:
        job.run_one()
    assert str(there.format) in str(refused.value)
    command = refused.value.hint[refused.value.hint.index("milepost migrate-table") :]
    rows = [row for row in job.master.reports.compatibility() if row["outcome"] == "refused"]
    assert (
        command in advice(job.small.context.spec, job.small.context.graph, rows)
        and "milepost migrate-table" in rows[0]["verdict"]
    )

    typed = shlex.split(command.replace("milepost migrate-table small", f"migrate-table {job.spec_path}"))
    too_early = milepost(*typed, "--yes")
    assert too_early.exit_code == 2
    wording.matches("migrate-table", too_early.stderr)
    job.say("seen", before)
    assert milepost(*typed, "--yes").exit_code == 0
    job.say("seen", there)
    job.run()
    job.assert_whole()


def test_reads_and_repairs_work_with_the_old_lines_and_the_new_ones(job: MigratingJob) -> None:
    job.migrate("seen")
    for _ in range(2):
        job.assert_whole()
        assert job.rows_at("seen", 3).num_rows == 9
        assert job.master.reports.diff(5, 6, ("sink", "seen"))[0].changes.table.num_rows == 0
        assert job.master.realignments.plan("seen").fault is None
        job.say("seen")


@pytest.mark.deep
def test_a_rollback_beyond_a_migration_undoes_it_and_one_forward_takes_it_up_again(
    job: MigratingJob, reading_engines: ReadingEngines
) -> None:
    for sink in SINKS:
        job.migrate(sink)
        job.say(sink)
    job.run(2)
    plan = job.master.rollbacks.plan(3)
    rows = plan.sinks["seen"]
    assert isinstance(rows, SinkRollback) and (rows.rows_now, rows.rows_then) == (21, 9), "of the table that is left"
    undone = plan.other_tables["seen"]
    assert undone.undoes_migration and undone.spec_lines == ("format: parquet", "path: ../lake/seen")
    wording.matches("plan", [line for line in plan.text if "../lake/seen" in line])
    back = job.carry_out(plan)
    wording.matches("rollback", back.next_step)
    job.assert_whole()
    with wording.raises(InvalidRequest):
        job.run_one()
    for sink in SINKS:
        job.say_parquet(sink)
    job.run(2)
    job.assert_whole()

    assert not job.master.rollbacks.plan(8).other_tables["seen"].undoes_migration
    job.rollback(8)
    job.assert_engines_agree(reading_engines)
    for sink in SINKS:
        job.say(sink)
    job.run(3)
    job.assert_engines_agree(reading_engines)
    job.assert_whole()


@pytest.mark.deep
@pytest.mark.parametrize("place", ["delta", "second"], ids=["to the same place", "elsewhere"])
def test_a_migration_that_was_undone_is_done_again(
    job: MigratingJob, reading_engines: ReadingEngines, place: str
) -> None:
    for sink in SINKS:
        job.migrate(sink)
        job.say(sink)
    job.run(2)
    job.rollback(2)
    for sink in SINKS:
        job.say_parquet(sink)
    job.run()
    for sink in SINKS:
        job.migrate(sink, delta(sink, place))
        job.say(sink, delta(sink, place))
    job.assert_engines_agree(reading_engines, place=place)
    job.run(2)
    job.assert_engines_agree(reading_engines, place=place)
    job.assert_whole()


@pytest.mark.deep
def test_going_back_to_the_empty_state_begins_the_table_that_the_spec_names(
    job: MigratingJob, reading_engines: ReadingEngines
) -> None:
    for sink in SINKS:
        job.migrate(sink)
        job.say(sink)
    job.run()
    job.rollback(0)
    assert reading_engines.read("duckdb", job.lake("seen")).num_rows == 0
    job.run(2)
    job.assert_engines_agree(reading_engines)
    job.assert_whole()


@pytest.mark.deep
def test_savepoints_from_before_and_after_a_migration_start_another_job(job: MigratingJob, tmp_path: Path) -> None:
    before = job.master.savepoints.create("before")
    for sink in SINKS:
        job.migrate(sink)
    after = job.master.savepoints.create("after")
    old = OtherJob.beside(job)
    old.master.restores.start(before.location or "before")
    old.assert_equals(job)
    for sink in SINKS:
        job.say(sink)
    new = OtherJob.beside(job, {"name: small": "name: newer", "../lake/": "../lake/newer-"})
    new.master.restores.start(after.location or "after")
    new.assert_equals(job)
    job.assert_whole()


def test_a_sink_that_is_down_follows_before_the_next_epoch(job: MigratingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is decided: the new table is in force, and the next session lets it follow."""

    def down(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("sinks/seen/marks/"):
            raise StoreUnavailable("planned outage")

    with monkeypatch.context() as outage:
        hook_stores(outage, before=down)
        with wording.raises(StoreUnavailable):
            job.migrate("seen")
    assert job.master.reports.status().reconciling == ("seen",)
    plan = job.master.migrations.plan("seen", delta("seen"))
    assert plan.done and job.master.migrations.run(plan).outcome == "nothing_to_migrate"
    assert job.master.reports.status().reconciling == ()
    job.say("seen")
    job.run()
    job.assert_whole()


@pytest.mark.deep
def test_a_table_that_was_moved_after_a_migration_is_realigned_whatever_the_spec_says(job: MigratingJob) -> None:
    job.migrate("seen")
    DeltaTable(str(job.lake("seen"))).delete("k = 0")
    plan = job.master.realignments.plan("seen")
    assert plan.fault is not None
    assert job.master.realignments.run(Session.cli(), plan).outcome == "realigned"
    job.assert_tables_equal_the_oracle()


def test_rows_in_flight_and_state_go_on(job: MigratingJob) -> None:
    """The checkpoint of a migration differs from the head in one table alone."""
    state = job.master.reports.state("latest")
    done = job.migrate("table")
    assert job.master.reports.state("latest").equals(state)
    context = job.small.context
    kept = {int(one.checkpoint_id): context.metadata(one) for one in context.head().state.checkpoints}
    now, then = kept[done.checkpoint_id], kept[EPOCHS]
    assert now.tables["seen"] == then.tables["seen"]
    assert now.operators["latest"].handles == then.operators["latest"].handles
    assert [name for name in then.tables if now.tables[name] != then.tables[name]] == ["table"]
    switches = [one["detail"] for one in job.master.reports.history() if one["event"] == "TimelineSwitched"]
    assert len(switches) == 1 and "a test" in switches[0]
    wording.matches("history", switches)


@pytest.mark.deep
def test_a_changelog_keeps_its_rows_as_they_are(tmp_path: Path, reading_engines: ReadingEngines) -> None:
    job = MigratingJob.with_epochs(
        tmp_path / "job", 3, {"path: ../lake/table, mode: upsert": "path: ../lake/table, mode: changelog"}
    )
    before = job.master.reports.read("table")
    assert {"_op", "_checkpoint"} <= set(before.schema.names)
    job.migrate("table")
    assert_same_rows(job.master.reports.read("table"), before, "table")
    assert_same_rows(reading_engines.read("polars", job.lake("table")), before, "table")


def test_a_plan_of_an_older_head_is_refused(job: MigratingJob) -> None:
    plan = job.master.migrations.plan("seen", delta("seen"))
    job.migrate("seen", delta("seen", "second"))
    with wording.raises(PlanOutdated):
        job.master.migrations.run(plan)
    job.assert_whole()


@pytest.mark.deep
def test_epochs_wait_while_a_table_is_written(job: MigratingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def meanwhile(operation: str, key: str) -> None:
        if operation == "put" and key.startswith("_milepost/data/") and not seen:
            seen.append(key)
            with wording.raises(Busy):
                job.master.epochs.run(Session.cli(), SparklessRunner())

    hook_stores(monkeypatch, after=meanwhile)
    job.migrate("seen")
    assert seen
    job.assert_whole()


@pytest.mark.deep
def test_the_table_that_is_left_says_where_it_was(job: MigratingJob) -> None:
    """A third place may be that of a copy of the job, which must not move the tables of the original."""
    job.migrate("seen")
    job.say("seen", TableAddress("delta", "../lake/elsewhere"))
    with wording.raises(InvalidRequest):
        job.run_one()
    with wording.raises(InvalidRequest):
        job.rollback(6)
    job.say("seen")
    job.run()
    job.assert_whole()


@pytest.mark.deep
def test_going_back_to_the_empty_state_the_old_table_begins_anew_if_the_spec_names_it(job: MigratingJob) -> None:
    """The new one has followed the rollback; the old one, which shows what it was left at, comes back to the spec."""
    job.migrate("seen")
    job.say("seen")
    job.run()
    job.rollback(0)
    job.say_parquet("seen")
    job.run(2)
    job.assert_whole()
    assert DeltaTable(job.lake("seen")).to_pyarrow_table().num_rows == 0


@pytest.mark.deep
def test_a_secret_of_a_catalog_is_written_nowhere(job: MigratingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of a table is kept as it was typed: references stay references."""
    folder = job.small.folder / "s3cr3t-folder"
    folder.mkdir()
    monkeypatch.setenv("LAKE_CATALOG", f"sqlite:///{folder}/catalog.db")
    catalog = CatalogAddress("sql", "${env:LAKE_CATALOG}", "milepost", {})
    target = TableAddress("iceberg", "../lake/ice-seen", "small.seen", catalog)
    job.migrate("seen", target)
    job.say("seen", target)
    job.run()
    job.rollback(5)
    job.assert_whole()
    kept = [path for path in (job.small.folder / "store").rglob("*") if path.is_file()]
    assert not any(b"s3cr3t" in path.read_bytes() for path in kept)
    assert any(b"${env:LAKE_CATALOG}" in path.read_bytes() for path in kept)


@pytest.mark.deep
def test_a_sink_that_was_dropped_over_a_rollback_follows_behind_a_migration_of_another(job: MigratingJob) -> None:
    """The checkpoint of the migration has no part of it: the sink did not follow there, and has missed the switch."""
    text = job.spec_path.read_text()
    job.edit(SEEN_SINK, "")
    job.rollback(2)
    job.migrate("table")
    job.spec_path.write_text(text)
    job.say("table")
    job.run()
    job.assert_whole()
