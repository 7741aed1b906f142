"""A table goes to another path of its format, or between open formats, as in any migration: with state, and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from milepost.errors import InvalidRequest
from milepost.jobmaster.compatibility.advice import advice
from milepost.tables.records.table_address import TableAddress
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.migrating_job import COLUMNS, SINKS, MigratingJob, delta, iceberg
from milepost_testkit.readers.reading_engines import ENGINES, CatalogTable, ReadingEngines
from milepost_testkit.rows.tables import assert_same_rows

pytestmark = pytest.mark.long

EPOCHS = 3


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> MigratingJob:
    """Three epochs, more landed. Only to be copied."""
    job = MigratingJob.with_epochs(tmp_path_factory.mktemp("prepared") / "job", EPOCHS)
    job.land(range(EPOCHS + 1, 15))
    return job


@pytest.fixture
def job(prepared: MigratingJob, tmp_path: Path) -> MigratingJob:
    return prepared.copy_to(tmp_path / "job")


def place(job: MigratingJob, format_: str, sink: str, name: str) -> TableAddress:
    if format_ == "iceberg":
        return replace(iceberg(job.small.folder, sink), path=f"../lake/{name}-{sink}", table=f"small.{name}_{sink}")
    return TableAddress(format_, f"../lake/{name}-{sink}")


def go(job: MigratingJob, format_: str, name: str) -> dict[str, TableAddress]:
    """Both tables go there, and the spec says so."""
    there = {sink: place(job, format_, sink, name) for sink in SINKS}
    for sink, target in there.items():
        assert job.migrate(sink, target).outcome == "migrated"
        job.say(sink, target)
    return there


def assert_engines_agree(job: MigratingJob, engines: ReadingEngines, format_: str, name: str) -> None:
    job.assert_whole()
    expected = job.expected()
    for sink in SINKS:
        table = (
            CatalogTable(f"{job.small.folder}/catalog.db", f"small.{name}_{sink}")
            if format_ == "iceberg"
            else job.lake(sink, name)
        )
        for engine in ENGINES if format_ != "parquet" else ():
            read = engines.read(engine, table, table_format=format_).select(COLUMNS[sink])
            assert_same_rows(read, expected[sink], f"{sink} by {engine}")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("iceberg", "delta"),
        *(
            pytest.param(*formats, marks=pytest.mark.deep)
            for formats in (("parquet", "parquet"), ("delta", "delta"), ("iceberg", "iceberg"), ("delta", "iceberg"))
        ),
    ],
)
def test_a_table_goes_on_elsewhere_and_back_and_forward_again(
    job: MigratingJob, reading_engines: ReadingEngines, first: str, second: str
) -> None:
    before = go(job, first, "one")
    job.run()
    left = job.live_ids[-1]
    go(job, second, "two")
    job.run()
    assert_engines_agree(job, reading_engines, second, "two")
    moved = job.live_ids[-1]
    plan = job.master.rollbacks.plan(left)
    for sink in SINKS:
        wording.matches("plan", [line for line in plan.text if f"-{sink}" in line])
    job.carry_out(plan)
    with wording.raises(InvalidRequest):
        job.run_one()
    for sink, target in before.items():
        job.say(sink, target)
    job.run()
    assert_engines_agree(job, reading_engines, first, "one")
    job.rollback(moved)
    for sink in SINKS:
        job.say(sink, place(job, second, sink, "two"))
    job.run()
    assert_engines_agree(job, reading_engines, second, "two")


def test_a_partitioned_table_keeps_its_partitions(tmp_path: Path) -> None:
    edit = {
        "format: parquet, path: ../lake/seen, mode: append": "format: delta, path: ../lake/seen, mode: append, "
        "partition_by: [v]"
    }
    job = MigratingJob.with_epochs(tmp_path / "job", 3, edit)
    job.land([4])
    job.migrate("seen", delta("seen", "second"))
    job.say("seen", delta("seen", "second"))
    job.run()
    job.assert_whole()
    table = DeltaTable(str(job.lake("seen", "second")))
    assert table.metadata().partition_columns == ["v"]
    assert_same_rows(table.to_pyarrow_table().select(["k", "v"]), job.expected()["seen"], "seen")


def test_a_table_that_was_left_is_emptied_once_no_checkpoint_is_of_it(job: MigratingJob) -> None:
    job.edit("last: 20", "last: 1")
    go(job, "delta", "one")
    job.run()
    go(job, "delta", "two")
    assert DeltaTable(str(job.lake("seen", "one"))).to_pyarrow_table().num_rows > 0
    job.run(3)
    assert DeltaTable(str(job.lake("seen", "one"))).to_pyarrow_table().num_rows == 0
    job.assert_whole()


def test_a_table_with_foreign_changes_is_not_moved_before_a_person_has_decided(job: MigratingJob) -> None:
    """The written rows are those of the job's head: a foreign change would be lost silently."""
    go(job, "delta", "one")
    DeltaTable(str(job.lake("seen", "one"))).delete("k = 0")
    with wording.raises(InvalidRequest):
        job.migrate("seen", delta("seen", "two"))


def test_a_table_with_rows_of_others_is_not_moved(tmp_path: Path) -> None:
    edit = {"format: parquet, path: ../lake/seen,": "format: delta, path: ../lake/seen, adopt: true,"}
    job = MigratingJob.with_epochs(tmp_path / "job", 1, edit)
    with wording.raises(InvalidRequest):
        job.migrate("seen", delta("seen", "second"))


def test_a_table_keeps_its_name_in_a_catalog_for_itself(job: MigratingJob) -> None:
    there = go(job, "iceberg", "one")
    again = replace(there["seen"], path="../lake/two-seen")
    with wording.raises(InvalidRequest):
        job.migrate("seen", again)


@pytest.mark.deep
def test_another_path_in_the_spec_is_refused_with_the_command_that_takes_the_table_there(job: MigratingJob) -> None:
    go(job, "delta", "one")
    job.say("seen", delta("seen", "two"))
    with wording.raises(InvalidRequest) as told:
        job.run_one()
    command = "milepost migrate-table small seen --to delta --path ../lake/two-seen"
    assert command in told.value.hint
    refused = [row for row in job.master.reports.compatibility() if row["outcome"] == "refused"]
    assert command in advice(job.small.context.spec, job.small.context.graph, refused)
