"""A sink of the latest rows that has missed some takes all of its aggregate's rows from state, once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from milepost.jobmaster import NothingToDo
from milepost.jobspec.graph.compatibility import UNCHANGED
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.counted_job import SEEN_SINK, CountedJob
from milepost_testkit.jobs.sparkless.migrating_job import MigratingJob
from milepost_testkit.jobs.sparkless.saved_job import OtherJob
from milepost_testkit.readers.reading_engines import ENGINES, ReadingEngines
from milepost_testkit.rows.tables import assert_same_rows

pytestmark = pytest.mark.long

TABLE = "  - {name: table, input: latest, format: parquet, path: ../lake/table, mode: upsert}\n"
SECOND = TABLE.replace("table", "second")
IN_DELTA = SECOND.replace("parquet", "delta")
CHANGES = "  - {name: changes, input: latest, format: parquet, path: ../lake/changes, mode: changelog}\n"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Four epochs, two more objects landed. Only to be copied."""
    job = CountedJob.with_epochs(tmp_path_factory.mktemp("filled") / "job", 4, {TABLE: TABLE + CHANGES})
    job.land(range(5, 8))
    return job


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


def changes_of(table: pa.Table, checkpoint: int) -> pa.Table:
    """Return rows of a table as one epoch's rows of a changelog."""
    ops, checkpoints = ["upsert"] * table.num_rows, pa.array([checkpoint] * table.num_rows, pa.int64())
    return table.append_column("_op", [ops]).append_column("_checkpoint", checkpoints)


def rows_of(job: CountedJob, sink: str) -> pa.Table:
    return job.master.reports.read(sink)


@pytest.mark.deep
@pytest.mark.parametrize("sink", [SECOND, IN_DELTA], ids=["parquet", "delta"])
def test_a_new_sink_shows_every_key_after_its_first_epoch(job: CountedJob, sink: str) -> None:
    """TABLES 2: rows come from state where the output is a function of it."""
    job.edit(TABLE, TABLE + sink)
    job.run()
    job.assert_tables_equal_the_oracle()
    assert_same_rows(rows_of(job, "second"), job.expected()["table"], "second")
    job.run(2)
    assert_same_rows(rows_of(job, "second"), job.expected()["table"], "second")


@pytest.mark.deep
def test_a_new_table_of_current_rows_needs_no_new_input(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "own", 2)
    job.edit(TABLE, TABLE + SECOND)
    job.run()
    assert_same_rows(rows_of(job, "second"), job.expected()["table"], "second")
    assert isinstance(job.run_one(), NothingToDo), "a table is filled once"


@pytest.mark.deep
def test_a_new_changelog_begins_with_every_key(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "own", 2)
    job.edit(TABLE, TABLE + CHANGES)
    job.run()
    assert_same_rows(rows_of(job, "changes"), changes_of(job.expected()["table"], 3), "changes")
    before = rows_of(job, "changes")
    job.land([9])
    job.run()
    added = rows_of(job, "changes").filter(pa.compute.field("_checkpoint") == 4)
    assert sorted(added["k"].to_pylist()) == [-9, 0, 9] and rows_of(job, "changes").num_rows == before.num_rows + 3


@pytest.mark.deep
def test_a_changelog_or_appended_table_that_comes_back_says_what_it_lacks(job: CountedJob) -> None:
    """A changelog could be filled, but not with the deletes of the time between."""
    job.edit(CHANGES, "")
    job.edit(SEEN_SINK, "")
    job.run()
    job.edit(TABLE, TABLE + CHANGES + SEEN_SINK)
    details = {row["name"]: row["detail"] for row in job.master.reports.compatibility() if row["kind"] == "sink"}
    assert details["table"] == UNCHANGED
    wording.matches("compatibility", "\n".join(details[name] for name in ("changes", "seen")))
    job.run()
    details = {row["name"]: row["detail"] for row in job.master.reports.compatibility() if row["kind"] == "sink"}
    assert {*details.values()} == {UNCHANGED}


@pytest.mark.deep
def test_engines_see_every_key_of_a_new_table_of_buckets(job: CountedJob, reading_engines: ReadingEngines) -> None:
    job.edit(TABLE, TABLE + IN_DELTA)
    job.run()
    for engine in ENGINES:
        seen = reading_engines.read(engine, job.small.folder / "lake" / "second")
        assert_same_rows(seen, job.expected()["table"], engine)


@pytest.mark.deep
def test_the_report_says_which_sinks_get_every_key(job: CountedJob) -> None:
    def told() -> dict[str, str]:
        return {row["uid"]: row["detail"] for row in job.master.reports.compatibility() if row["kind"] == "sink"}

    job.edit(TABLE, TABLE + IN_DELTA)
    every = told()["sink second"]
    wording.matches("compatibility", every)
    assert told()["sink table"] == UNCHANGED
    job.edit(IN_DELTA, "")
    job.edit(TABLE, "")
    job.run()
    job.edit(CHANGES, TABLE + CHANGES)
    assert told()["sink table"] == every
    job.run()
    assert told()["sink table"] == UNCHANGED


def test_sinks_that_miss_nothing_get_the_changes_alone(job: CountedJob) -> None:
    """The changelog next to a new sink has a row for each changed key, and none for a key that was only filled in."""
    job.edit(TABLE, TABLE + SECOND)
    job.run()
    changes = rows_of(job, "changes").filter(pa.compute.field("_checkpoint") == 5)
    assert sorted(changes["k"].to_pylist()) == [-5, 0, 5]


@pytest.mark.deep
def test_the_next_epoch_stages_the_changes_again(job: CountedJob) -> None:
    job.edit(TABLE, TABLE + SECOND)
    job.run()
    before = job.master.context.base_metadata(job.small.context.head().state, 5)
    assert before is not None and before.sinks["second"].rows == 11
    job.run()
    after = job.master.context.base_metadata(job.small.context.head().state, 6)
    assert after is not None and after.sinks["second"].rows == 3


@pytest.mark.deep
def test_a_sink_that_comes_back_has_what_it_missed(job: CountedJob) -> None:
    job.edit(TABLE, "")
    job.run()
    job.edit(CHANGES, TABLE + CHANGES)
    job.run()
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_a_migration_of_one_table_makes_no_other_one_be_filled(job: CountedJob) -> None:
    """The migrated checkpoint has the other tables as they were, and no epoch was missed."""
    migrating = MigratingJob(job.small)
    migrating.migrate("seen")
    migrating.say("seen")
    job.run()
    after = job.master.context.base_metadata(job.small.context.head().state, 6)
    assert after is not None and after.sinks["table"].rows == 3
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_a_sink_that_comes_back_and_is_migrated_first_has_what_it_missed(job: CountedJob) -> None:
    job.edit(TABLE, "")
    job.run()
    job.edit(CHANGES, TABLE + CHANGES)
    migrating = MigratingJob(job.small)
    migrating.migrate("table")
    migrating.say("table")
    job.run()
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_a_sink_that_comes_back_and_goes_along_in_a_savepoint_has_what_it_missed(job: CountedJob) -> None:
    job.edit(TABLE, "")
    job.run()
    job.edit(CHANGES, TABLE + CHANGES)
    made = job.master.savepoints.create("before")
    other = OtherJob.beside(job)
    other.master.restores.start(made.location)
    for one in (job, other):
        one.run(1)
    job.assert_tables_equal_the_oracle()
    other.assert_equals(job)


@pytest.mark.deep
def test_a_rollback_beyond_a_filled_table_empties_it_and_it_is_filled_again(job: CountedJob) -> None:
    job.edit(TABLE, TABLE + IN_DELTA)
    job.run(2)
    job.rollback(4)
    assert rows_of(job, "second").num_rows == 0
    job.run()
    assert_same_rows(rows_of(job, "second"), job.expected()["table"], "second")
