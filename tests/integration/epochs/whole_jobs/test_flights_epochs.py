"""The first milepost: real flights, epoch by epoch, equal to an independent oracle."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import CheckpointExpired
from milepost_testkit import wording
from milepost_testkit.jobs.flights.flights import EMPTY_KEY, facts
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.readers.reading_engines import ReadingEngines
from milepost_testkit.rows.tables import assert_same_rows

SLOW = "FROM flights WHERE size(filter(sequence(1, 300000), n -> n % 7 = flight % 7)) >= 0 AND"
"""A filter that takes at least 10 s for two days, also in a JVM that has compiled it."""


@pytest.mark.parametrize("days", [12, pytest.param(28, marks=pytest.mark.deep)])
def test_days_in_epochs_of_four_equal_the_oracle_row_for_row(
    tmp_path: Path, reading_engines: ReadingEngines, days: int
) -> None:
    job = FlightsJob.create(tmp_path, table_format="delta")
    documents = []
    for first in range(1, days + 1, 4):
        job.land(range(first, first + 4))
        documents += job.run_until_caught_up()
    assert [document.epoch for document in documents] == [*range(1, days // 4 + 1)]
    consumed = [key for epoch in job.epochs() for key in epoch]
    assert len(consumed) == days and not any(EMPTY_KEY.endswith(key) for key in consumed)
    expected = job.assert_tables_equal_the_oracle()
    for name, table in expected.tables.items():
        seen = reading_engines.read("duckdb", tmp_path / "lake" / name)
        assert_same_rows(seen.select(table.column_names), table, f"{name} by DuckDB")
    known = facts(range(1, days + 1))
    assert sum(document.rows_in for document in documents) == sum(item.rows for item in known.values())
    assert expected.late["hourly"] == sum(document.late_rows for document in documents) > 0
    with pytest.raises(AssertionError, match="carriers"):
        without = job.expected(deduplicate=False)
        assert_same_rows(job.master().reports.read("carriers"), without.tables["carriers"], "carriers")


@pytest.mark.deep
def test_a_whole_year_equals_the_oracle_row_for_row(tmp_path: Path) -> None:
    """365 days, 336,776 flights, with duplicates, late rows, an empty object and one out of name order."""
    job = FlightsJob.create(tmp_path, {"max_files: 4": "max_files: 15"})
    read = 0
    for first in range(1, 366, 15):
        job.land(range(first, min(first + 15, 366)))
        read += sum(document.rows_in for document in job.run_until_caught_up())
    expected = job.assert_tables_equal_the_oracle()
    assert read == sum(expected.rows) > 336_776
    assert expected.duplicates["unique"] > 1000 and expected.late["hourly"] > 0
    assert (verified := job.master().reports.verify(deep=True)).unasked == verified.discarded == ()


def test_an_epoch_past_its_deadline_is_cancelled_and_aborted_as_expired(tmp_path: Path) -> None:
    """DESIGN 8.2: 6. The Spark job ends at `checkpointing.timeout`, also without Airflow to stop it."""
    job = FlightsJob.create(tmp_path, {"timeout: 10m": "timeout: 1s", "FROM flights WHERE": SLOW})
    job.land(range(1, 3))
    with wording.raises(CheckpointExpired, replace={r"\bafter \d+ ms": "after {time} ms"}):
        job.run()
    (document,) = job.master().reports.list_checkpoints()
    assert (document.status, document.failure_reason) == ("aborted", "CHECKPOINT_EXPIRED")
