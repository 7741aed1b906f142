"""The flights job on open tables: engines that had no part in them read them at every checkpoint, and meanwhile."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster import Session
from milepost_testkit import wording
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.flights.open_flights import FILTERS
from milepost_testkit.jobs.flights.watched_flights import RIGHT, WRONG, Story, begun, hour_of, there_and_back
from milepost_testkit.readers.reading_engines import ENGINES, SPARK, ReadingEngines, all_engines

FORMATS = ("delta", "iceberg")


@pytest.mark.deep
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_engines_see_whole_checkpoints_only_forward_and_back(
    table_format: str, tmp_path: Path, reading_engines: ReadingEngines
) -> None:
    """TABLES 1.1, 1.2, 1.6: append, upsert and changelog; others' rows stay."""
    there_and_back(begun(tmp_path, table_format, reading_engines, ENGINES))


@pytest.mark.deep
@pytest.mark.parametrize("table_format", FORMATS)
def test_engines_see_whole_checkpoints_only_whatever_happens_to_job_and_tables(
    table_format: str, tmp_path: Path, reading_engines: ReadingEngines
) -> None:
    """TABLES 1, 6: compactions, others' rows, a backfill's switch and back, a DELETE and a realignment."""
    story = begun(tmp_path, table_format, reading_engines, all_engines())
    story.epoch()
    with story.witnesses.watching() as seen:
        second = story.epoch()
        story.epoch()
        assert story.back_to(2) == second
        story.forward()
        compacted_and_gone_back_over(story)
        rows_of_others(story)
        switched_and_back(story)
        a_delete_is_refused_and_put_right(story)
        story.epoch()
    for engine in story.witnesses.names:
        assert len(seen[engine, "carriers"]) > 1, "it read before and after something was published"
    assert (verified := story.flights.job.master().reports.verify(deep=True)).unasked == verified.discarded == ()
    assert story.flights.job.master().reports.fsck().exit_code == 0


def compacted_and_gone_back_over(story: Story) -> None:
    before, at = story.look(), story.head()
    story.flights.compact_by_library("changes")
    if SPARK in story.witnesses.names:
        story.flights.compact_by_spark("carriers", story.witnesses.engines)
        story.flights.compact_by_spark("hourly", story.witnesses.engines)
    assert story.look() == before, "the same rows in other files"
    after = story.epoch()
    assert story.back_to(at) == before
    forward = story.forward()
    assert {table: forward[table] for table in ("carriers", "hourly")} == {
        table: after[table] for table in ("carriers", "hourly")
    }


def rows_of_others(story: Story) -> None:
    story.flights.append_by_library("hourly", hour_of(1, 7))
    story.look()
    if SPARK in story.witnesses.names:
        story.flights.append_by_spark("hourly", hour_of(2, 8), story.witnesses.engines)
        story.look()
    story.epoch()


def switched_and_back(story: Story) -> None:
    """A rule was wrong from the beginning; later it turns out that it was not."""
    job, before, at = story.flights.job, story.look(), story.head()
    job.edit(job.spec_path.read_text(), {WRONG: RIGHT})
    back_fill(job.master(), story.runner(), from_checkpoint=0)
    corrected = story.look()
    assert corrected["carriers"] != before["carriers"]
    job.edit(job.spec_path.read_text(), {RIGHT: WRONG})
    assert story.back_to(at) == before
    story.epoch()


def a_delete_is_refused_and_put_right(story: Story) -> None:
    """Rows of the job: the next epoch is refused before its commit point, and a person decides for the job."""
    job, before = story.flights.job, story.look()
    expected = story.flights.expected()
    if SPARK in story.witnesses.names:
        story.flights.delete_by_spark("carriers", "UA", story.witnesses.engines)
    else:
        story.flights.delete_by_library("carriers", "UA")
    left = expected["carriers"].filter(pa.compute.not_equal(expected["carriers"].column("carrier"), "UA"))
    story.witnesses.see(expected | {"carriers": left}, FILTERS)
    job.land(range(story.last_day + 1, story.last_day + 5))
    with wording.raises(InvalidRequest) as refused:
        job.master().epochs.run(Session.cli(), story.runner())
    assert "milepost realign flights carriers" in refused.value.hint
    job.master().realignments.run(Session.cli(), job.master().realignments.plan("carriers"))
    assert story.look() == before
    job.master().lifecycle.resume()
    story.last_day += 4
    story.forward()
