"""A Delta table that was restored to before a rollback: what came back is refused, not taken for rows of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from milepost.errors import InvalidRequest
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.readers.reading_engines import ENGINES, ReadingEngines
from milepost_testkit.rows.tables import assert_same_rows

DELTA = {"format: parquet, path: ../lake/seen": "format: delta, path: ../lake/seen"}


@pytest.fixture
def restored(tmp_path: Path) -> CountedJob:
    """Three epochs, a rollback to the first, and a RESTORE to before it, which only adds files."""
    job = CountedJob.with_epochs(tmp_path / "job", 3, DELTA)
    before = table(job).version()
    job.rollback(1)
    table(job).restore(before)
    job.master.lifecycle.resume()
    return job


def table(job: CountedJob) -> DeltaTable:
    return DeltaTable(str(job.small.folder / "lake" / "seen"))


@pytest.mark.long
def test_restored_rows_are_never_counted_in_addition_to_those_of_the_next_epochs(
    restored: CountedJob, reading_engines: ReadingEngines
) -> None:
    """TABLES 1.7: they would be there twice, once the rolled-back epochs have run again."""
    with wording.raises(InvalidRequest) as refused:
        restored.run()
    assert "milepost realign small seen" in refused.value.hint
    restored.master.realignments.run(Session.cli(), restored.master.realignments.plan("seen"))
    restored.master.lifecycle.resume()
    restored.run(2)
    restored.assert_tables_equal_the_oracle()
    for engine in ENGINES:
        found = reading_engines.read(engine, restored.small.folder / "lake" / "seen")
        assert_same_rows(found, restored.expected()["seen"], engine)


@pytest.mark.deep
def test_a_restore_that_was_undone_by_hand_is_nothing_to_the_job(restored: CountedJob) -> None:
    """The message says: put it back."""
    table(restored).restore(table(restored).version() - 1)
    restored.run(2)
    restored.assert_tables_equal_the_oracle()


@pytest.mark.long
def test_rows_that_were_brought_back_and_then_compacted_are_refused_too(restored: CountedJob) -> None:
    table(restored).optimize.compact()
    with wording.raises(InvalidRequest):
        restored.run()
