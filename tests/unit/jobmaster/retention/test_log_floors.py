"""Landed records are deleted once no retained checkpoint needs them and `land.retain` has passed (L5)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from milepost.errors import InvalidRequest, StateCorrupt
from milepost.protocol.records.layout import landed_object_place, landed_record_key, landed_sequence
from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.specs.spec_edits import edited
from milepost_testkit.stores.job_stores import later

DAY_MS = 86_400_000
RETAIN = "    event_time: at\n    land: {retain: 0s}"


def trimming_job(folder: Path, epochs: int = 0, last: int = 2) -> LandedJob:
    """A job that retains as little as it can. Each epoch reads one record with one row."""
    edit = {"{last: 50}": f"{{last: {last}}}", "    event_time: at": RETAIN}
    job = LandedJob.create(folder / "job", edit)
    for _ in range(epochs):
        job.land_and_run(1)
    return job


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    """Checkpoints 5 and 6 are retained. Checkpoint 5 has read record 6, so the floor is record 7: the newest."""
    return trimming_job(tmp_path, 6)


def floor(job: LandedJob) -> int:
    (only,) = job.context.head().state.floors
    return only.next


def held_by(job: LandedJob) -> tuple[int, str | None]:
    """The oldest retained record, and what holds it, by `milepost status`."""
    sources = job.master.reports.status().sources
    log = None if sources is None else sources["feed"].log
    assert log is not None
    return log.retained_from, log.held_by


def stored(job: LandedJob) -> tuple[list[int], list[int]]:
    """Sequences of the records that are stored, and of those with stored objects."""
    keys = [stat.key for stat in job.context.store.list("landed/")]
    places = (landed_object_place(key) for key in keys)
    records = sorted(sequence for key in keys if (sequence := landed_sequence(key)) is not None)
    return records, sorted({place[1] for place in places if place is not None})


@pytest.mark.deep
def test_an_epoch_raises_the_floor_to_what_its_retained_checkpoints_have_read(job: LandedJob) -> None:
    assert floor(job) == 7
    assert stored(job) == ([1, 2, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6, 7]), "nothing is deleted within the grace period"
    audit = job.master.reports.fsck()
    assert (audit.exit_code, audit.unreachable, audit.foreign) == (0, (), ())
    assert held_by(job) == (7, "checkpoint 5 (checkpointing.retained)")


@pytest.mark.deep
def test_a_later_epoch_deletes_the_records_below_the_floor(job: LandedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    later(monkeypatch, DAY_MS)
    job.land_and_run(2)
    assert stored(job) == ([7, 8], [7, 8])
    job.assert_tables(7)
    assert job.master.reports.verify(deep=True).objects
    assert job.master.reports.fsck().exit_code == 0


@pytest.mark.deep
def test_records_younger_than_retain_stay(tmp_path: Path) -> None:
    job = LandedJob.create(tmp_path / "job", {"{last: 50}": "{last: 2}"})
    for _ in range(4):
        job.land_and_run(1)
    assert job.context.head().state.floors == ()
    assert held_by(job) == (1, "land.retain (7d), until the next checkpoint is dropped")


@pytest.mark.deep
def test_records_older_than_retain_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = LandedJob.create(tmp_path / "job", {"{last: 50}": "{last: 2}"})
    for _ in range(4):
        job.land_and_run(1)
    later(monkeypatch, 8 * DAY_MS)
    job.land_and_run(1)
    assert floor(job) == 6, "record 5 is the last that checkpoint 4 has read"
    later(monkeypatch, 9 * DAY_MS)
    job.land_and_run(1)
    assert stored(job)[0] == [6, 7]


TWO_SOURCES = {
    "operators:": "  bids: {format: nexmark, events: bid, total: 6, land: {max_rows: 2, retain: 0s}}\noperators:",
    "sinks:": "sinks:\n  - {name: bids, input: bids, format: parquet, path: ../lake/bids, mode: append}",
}


@pytest.mark.long
def test_the_log_of_a_source_that_left_the_spec_is_deleted_up_to_its_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = trimming_job(tmp_path)
    spec = job.folder / "config" / "landed.yaml"
    alone = spec.read_text()
    spec.write_text(edited(alone, TWO_SOURCES))
    job.land_and_run(1)
    spec.write_text(alone)
    job.land_and_run(2, allow_non_restored_state=True)
    later(monkeypatch, 8 * DAY_MS)  # the default of `retain`, since the spec has none of this source
    for _ in range(3):
        job.land_and_run(3)
    assert {floor.source: floor.next for floor in job.context.head().state.floors} == {"bids": 4, "feed": 6}
    later(monkeypatch, 9 * DAY_MS)
    job.land_and_run(3)
    bids = [sequence for key in job.context.store.list("landed/bids/") if (sequence := landed_sequence(key.key))]
    assert bids == [4], "its end remains"
    assert job.master.reports.fsck().exit_code == 0
    job.assert_tables(6)
    spec.write_text(edited(alone, TWO_SOURCES))
    assert not job.land().failed
    job.land_and_run(4)
    assert job.master.reports.read("bids").num_rows == 6, "no bid is read twice"


@pytest.mark.long
def test_a_checkpoint_with_a_savepoint_holds_what_it_has_not_read(tmp_path: Path) -> None:
    job = trimming_job(tmp_path, 3)
    job.master.savepoints.create("held")
    for _ in range(4):
        job.land_and_run(1)
    assert floor(job) == 5, "checkpoint 3 has read record 4"
    assert held_by(job) == (5, "checkpoint 3 (savepoint held)")
    job.roll_back(3)
    job.epoch()
    job.assert_tables(5)


def test_a_rollback_to_the_empty_state_begins_at_the_floor_and_its_plan_names_missing_records(
    job: LandedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(monkeypatch, DAY_MS)
    job.land_and_run(2)
    plan = job.master.rollbacks.plan(0)
    assert any("before 8 of its log were deleted" in line and '{"next": 6}' in line for line in plan.not_undone)
    assert plan.runs_again is not None and plan.runs_again["feed"].objects == 1
    job.roll_back(0)
    assert held_by(job) == (8, "a timeline that begins with the empty state")
    job.epoch()
    job.assert_tables(7, since=6)


@pytest.mark.long
def test_a_backfill_that_needs_deleted_records_is_refused_and_one_from_a_checkpoint_is_not(job: LandedJob) -> None:
    with pytest.raises(InvalidRequest, match="records 1 to 6 of source feed, which are older than `land"):
        job.backfill(from_checkpoint=0)
    job.backfill(from_checkpoint=5)
    job.assert_tables(6)


@pytest.mark.long
def test_a_backfill_from_the_empty_state_goes_on_if_the_deleted_records_have_no_rows(tmp_path: Path) -> None:
    job = trimming_job(tmp_path, last=1)
    job.land_and_run(1, 2, 3)
    job.roll_back(0)
    job.epoch()
    assert floor(job) == 2, "record 1 only begins the log"
    job.backfill(from_checkpoint=0)
    job.assert_tables(3)
    job.land_and_run(4)
    job.assert_tables(4)


@pytest.mark.long
def test_a_savepoint_from_below_the_floor_is_not_restored_into_the_job(tmp_path: Path) -> None:
    job = trimming_job(tmp_path, 2)
    job.master.savepoints.create("old")
    job.master.savepoints.export(2, str(tmp_path / "old"))
    job.master.savepoints.dispose("old")
    for _ in range(5):
        job.land_and_run(1)
    job.master.savepoints.cancel()
    with pytest.raises(InvalidRequest, match="has deleted the begin of its own log: its retained records begin with"):
        job.master.restores.start(str(tmp_path / "old"))


@pytest.mark.deep
@pytest.mark.parametrize("is_moved_out", [False, True], ids=["trimmed", "moved out"])
def test_a_savepoint_of_another_job_is_not_restored_again_once_the_log_that_continued_it_is_trimmed(
    tmp_path: Path, is_moved_out: bool
) -> None:
    """Its position is below the floor, and the records after it are listed for deletion."""
    first = trimming_job(tmp_path / "first", 2)
    first.master.savepoints.export(2, str(tmp_path / "saved"), with_input=True)
    job = trimming_job(tmp_path / "second")
    job.master.restores.start(str(tmp_path / "saved"))
    (job.folder / "feed.json").write_text((first.folder / "feed.json").read_text())
    for _ in range(4):
        job.land_and_run(1)
    job.master.savepoints.cancel()
    before = job.context.head().state
    assert before.floors
    if is_moved_out:
        shutil.rmtree(job.folder / "store" / "landed" / "landed")
    with pytest.raises(InvalidRequest, match="has deleted the begin of its own log"):
        job.master.restores.start(str(tmp_path / "saved"))
    assert job.context.head().state == before


@pytest.mark.deep
def test_a_log_that_is_lost_after_it_was_trimmed_is_not_begun_anew(job: LandedJob) -> None:
    """A new log would have the record numbers that are listed for deletion."""
    job.roll_back(0)
    context = job.context
    context.store.delete([stat.key for stat in context.store.list("landed/")])
    job.produce(7)
    (failed,) = job.land().failed
    assert failed.error == StateCorrupt.__name__
    assert list(context.store.list("landed/feed/records/")) == [] and job.left == 1


@pytest.mark.long
def test_a_log_that_ends_below_its_floor_is_lost(job: LandedJob) -> None:
    """Its newest records are missing, and the ones before are listed for deletion."""
    job.roll_back(0)
    job.context.store.delete([landed_record_key("feed", 7)])
    job.produce(7)
    (failed,) = job.land().failed
    assert (failed.error, job.left) == (StateCorrupt.__name__, 1)


@pytest.mark.long
def test_a_record_that_is_deleted_above_the_floor_is_damage(job: LandedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    later(monkeypatch, DAY_MS)
    job.land_and_run(2)
    for key in (1, 2):
        job.produce(key)
        job.land()
    job.context.store.delete([landed_record_key("feed", 9)])
    with pytest.raises(StateCorrupt):
        job.master.reports.verify(deep=True)
    assert job.master.reports.fsck().exit_code != 0


@pytest.mark.long
def test_a_record_that_appears_below_the_floor_counts_for_nothing_and_is_collected(
    job: LandedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a late write, or a partial restore from a copy of the store."""
    body = job.context.store.get(landed_record_key("feed", 3))
    later(monkeypatch, DAY_MS)
    job.land_and_run(2)
    job.context.store.put(landed_record_key("feed", 3), body)
    audit = job.master.reports.fsck()
    assert (audit.exit_code, [item.key for item in audit.unreachable]) == (0, [landed_record_key("feed", 3)])
    job.master.collect_garbage()
    later(monkeypatch, 2 * DAY_MS)
    job.master.collect_garbage()
    assert stored(job) == ([8], [8])
