"""Epochs, rollbacks and backfills read the log of a landed source, never its external system again (L5, L6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import CommitConflict, InvalidRequest, StateCorrupt, SubtaskDeclined
from milepost.jobmaster import NothingToDo
from milepost.jobmaster.backfill.consumed_input import ConsumedInput, check_equal, consumed_by
from milepost.jobmaster.backfill.replay import lineage_since, recorded_ranges
from milepost.protocol.records.ids import CheckpointId
from milepost_testkit.jobs.sparkless.landed_job import LandedJob


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    return LandedJob.create(tmp_path / "job")


def test_an_epoch_reads_landed_rows_that_the_external_system_may_forget(job: LandedJob) -> None:
    job.land_and_run(1, 2, 1)
    assert job.left == 0
    job.assert_tables(3)


def test_without_a_landing_there_is_nothing_to_do(job: LandedJob) -> None:
    job.produce(1)
    result = job.epoch()
    assert isinstance(result, NothingToDo)
    assert "nothing was landed from feeds:Feed" in result.message


def test_a_landing_without_rows_starts_no_epoch(job: LandedJob) -> None:
    job.land()
    assert isinstance(job.epoch(), NothingToDo)
    job.land_and_run(1)
    job.land()
    assert isinstance(job.epoch(), NothingToDo)


@pytest.mark.deep
def test_an_epoch_takes_whole_records_up_to_its_limits_and_the_next_one_goes_on(job: LandedJob) -> None:
    for key in (1, 2, 3, 4):
        job.produce(key)
        job.land()
    job.epoch()
    job.assert_tables(1)  # the record that begins the log counts as the first of two
    job.epoch()
    job.assert_tables(3)
    job.epoch()
    job.assert_tables(4)
    assert isinstance(job.epoch(), NothingToDo)


@pytest.mark.deep
def test_a_rollback_to_any_checkpoint_is_exact_although_the_external_system_is_empty(job: LandedJob) -> None:
    checkpoints = [job.land_and_run(1, 2), job.land_and_run(2, 3, 3), job.land_and_run(1)]
    counts = dict(zip(checkpoints, (2, 5, 6), strict=True))
    assert job.left == 0
    for target in (checkpoints[1], checkpoints[0], checkpoints[2], checkpoints[0]):
        job.roll_back(target)
        job.assert_tables(counts[target])
    job.epoch()
    job.epoch()
    job.assert_tables(6)


@pytest.mark.deep
def test_a_rollback_to_the_empty_state_reads_the_log_from_its_begin(job: LandedJob) -> None:
    job.land_and_run(1, 2)
    job.land_and_run(3)
    plan = job.master.rollbacks.plan(0)
    assert {name: size.objects for name, size in (plan.runs_again or {}).items()} == {"feed": 3}
    job.roll_back(0)
    while not isinstance(job.epoch(), NothingToDo):
        pass
    job.assert_tables(3)


def test_a_rollback_plan_names_the_landed_input_that_runs_again_and_that_counts_as_read(job: LandedJob) -> None:
    first, second = job.land_and_run(1, 2), job.land_and_run(3)
    back = job.master.rollbacks.plan(first)
    assert {name: size.objects for name, size in (back.runs_again or {}).items()} == {"feed": 1}
    assert "feed" not in (back.counts_as_read or {})
    job.roll_back(first)
    forward = job.master.rollbacks.plan(second)
    assert {name: size.objects for name, size in (forward.counts_as_read or {}).items()} == {"feed": 1}
    points = {int(point.checkpoint_id): point for point in job.master.rollbacks.rewind_points()}
    assert set(points[second].counts_as_read or {}) == {"feed"}


@pytest.mark.deep
@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_backfill_replays_the_recorded_records_on_a_fork(job: LandedJob, start: int) -> None:
    for keys in ((1, 2), (2,), (3, 1)):
        job.land_and_run(*keys)
    before = job.position()
    job.backfill(from_checkpoint=start)
    assert job.position() == before
    job.assert_tables(5)
    job.land_and_run(9)
    job.assert_tables(6)


def test_a_missing_object_stops_the_epoch_and_loses_nothing(job: LandedJob) -> None:
    job.land_and_run(1)
    job.produce(2)
    job.land()
    (lost, *_) = sorted((job.folder / "store" / "landed" / "landed" / "feed" / "objects").glob("*3/*/*.parquet"))
    body = lost.read_bytes()
    lost.unlink()
    with pytest.raises(SubtaskDeclined, match=f"{lost.name}.*the object is missing"):
        job.epoch()
    job.assert_tables(1)
    lost.write_bytes(body)
    job.master.lifecycle.resume()
    job.epoch()
    job.assert_tables(2)


def test_a_log_that_was_deleted_stops_the_job_and_is_not_taken_for_an_empty_one(job: LandedJob) -> None:
    job.land_and_run(1)
    records = job.folder / "store" / "landed" / "landed" / "feed" / "records"
    records.rename(records.with_name("elsewhere"))
    with pytest.raises(StateCorrupt, match="what is stored is not that log: there is none"):
        job.epoch()


@pytest.mark.long
@pytest.mark.parametrize("keeps", [0, 2], ids=["lost", "restored from an older copy"])
def test_nothing_is_landed_or_acknowledged_into_a_log_without_the_end_that_was_read(job: LandedJob, keeps: int) -> None:
    """Rows that are in no log that an epoch will read must stay in the external system."""
    for keys in ((1,), (2, 3)):
        job.land_and_run(*keys)
    records = sorted((job.folder / "store").rglob("landed/feed/records/*.json"), reverse=True)  # the oldest first
    bodies = {path: path.read_bytes() for path in records}
    for path in records[keeps:]:
        path.unlink()
    job.produce(4, 5)
    (failed,) = job.land().failed
    assert (failed.error, job.left) == ("StateCorrupt", 2)
    assert "the checkpoint has read its log" in failed.message
    for path, body in bodies.items():
        path.write_bytes(body)
    job.land()
    job.epoch()
    job.assert_tables(5)


@pytest.mark.deep
def test_a_row_without_an_event_time_is_not_landed_because_no_epoch_could_process_it(job: LandedJob) -> None:
    job.land_and_run(1)
    feeds = job.folder / "config" / "feeds.py"
    code = feeds.read_text()
    feeds.write_text(code.replace("START + timedelta(hours=n))", "None if n == 2 else START + timedelta(hours=n))"))
    job.produce(2, 3)
    (failed,) = job.land().failed
    assert (
        "row 1, column at is null, but the event time is required. Nothing from this read was landed" in failed.message
    )
    assert (failed.error, job.left) == ("InvalidRequest", 2)
    feeds.write_text(code)
    job.land()
    job.epoch()
    job.assert_tables(3)


@pytest.mark.deep
def test_a_copy_of_the_storage_goes_on_from_where_it_was(job: LandedJob, tmp_path: Path) -> None:
    job.land_and_run(1, 2)
    job.produce(3)
    job.land()
    moved = job.folder.rename(tmp_path / "moved")  # no etag and no path is the same
    copy = LandedJob(moved)
    for path in (moved / "store").rglob("*.parquet"):
        path.touch()
    spec = moved / "config" / "landed.yaml"
    spec.write_text(spec.read_text().replace(str(job.folder), str(moved)))
    copy.epoch()
    copy.assert_tables(3)


def test_a_source_that_becomes_files_under_its_name_is_refused_and_back_again_goes_on(job: LandedJob) -> None:
    job.land_and_run(1, 2)
    spec = job.folder / "config" / "landed.yaml"
    landed = spec.read_text()
    begin, end = landed.index("    format: python"), landed.index("    schema:")
    spec.write_text(
        landed[:begin] + "    format: csv\n    path: ../in/*.csv\n" + landed[end:].replace("max_records", "max_files")
    )
    with pytest.raises(InvalidRequest, match="source feed: needs a new uid or a backfill"):
        job.epoch()
    spec.write_text(landed)
    job.land_and_run(3)
    job.assert_tables(3)


@pytest.mark.deep
def test_a_checkpoint_without_landed_input_keeps_its_position(tmp_path: Path) -> None:
    feed = "  feed:\n"
    other = "  other: {format: csv, path: ../in/*.csv, schema: {k: int64}, settle: 0s}\n"
    sink = "checkpointing:"
    another = "  - {name: others, input: other, format: parquet, path: ../lake/others, mode: append}\ncheckpointing:"
    job = LandedJob.create(tmp_path / "job", {feed: other + feed, sink: another})
    (job.folder / "in").mkdir()
    (job.folder / "in" / "a.csv").write_text("k\n1\n")
    job.land_and_run(1, 2)
    position = job.position()
    (job.folder / "in" / "b.csv").write_text("k\n2\n")
    assert not isinstance(job.epoch(), NothingToDo)
    assert job.position() == position is not None
    job.land_and_run(3)
    job.assert_tables(3)


def test_heads_that_have_read_different_parts_of_a_log_are_not_equal(job: LandedJob) -> None:
    first, second = job.land_and_run(1), job.land_and_run(2)
    read = [{"feed": ConsumedInput(position=job.position(at))} for at in (first, second)]
    check_equal(read[1], read[1])
    for live, replayed in (read, reversed(read)):
        with pytest.raises(CommitConflict, match="they have read its log up to the records"):
            check_equal(live, replayed)


def test_ranges_of_a_log_that_do_not_lead_to_the_head_are_refused(job: LandedJob) -> None:
    first, second = job.land_and_run(1), job.land_and_run(2)
    context = job.context
    state = context.head().state
    lineage = lineage_since(context, CheckpointId(second), CheckpointId(first))
    base, head = (consumed_by(context, context.base_metadata(state, at)) for at in (first, second))
    assert recorded_ranges(context, lineage, None, base, head)[0].landed
    with pytest.raises(StateCorrupt, match="the recorded ranges of the log of source feed are not consecutive"):
        recorded_ranges(context, lineage, None, base, base)
    with pytest.raises(StateCorrupt, match="read from record 3 on"):
        recorded_ranges(context, lineage, None, {}, head)


@pytest.mark.deep
def test_rows_that_were_landed_before_a_column_was_declared_have_null_in_it(job: LandedJob) -> None:
    job.produce(1, 2)
    job.land()
    spec, feeds = job.folder / "config" / "landed.yaml", job.folder / "config" / "feeds.py"
    spec.write_text(
        spec.read_text()
        .replace("n: int64,", "n: int64, note: string,")
        .replace("total: sum(n)", "total: sum(n), notes: count(note)")
    )
    feeds.write_text(feeds.read_text().replace('- state["deleted"]], n,', "- state[\"deleted\"]], n, 'new',"))
    job.land_and_run(2)
    job.epoch()  # the record that begins the log counted as one of two
    rows = job.master.reports.read("rows").select(["n", "note"]).sort_by("n").to_pylist()
    assert [row["note"] for row in rows] == [None, None, "new"]
    totals = job.master.reports.read("totals").select(["k", "notes"]).sort_by("k").to_pylist()
    assert [tuple(row.values()) for row in totals] == [(1, 0), (2, 1)]


@pytest.mark.deep
def test_rows_that_no_longer_fit_a_retyped_column_stop_the_epoch_and_fit_again_after_the_change(
    job: LandedJob,
) -> None:
    job.produce(1)
    job.land()
    spec = job.folder / "config" / "landed.yaml"
    landed = spec.read_text()
    spec.write_text(landed.replace("n: int64,", "n: bool,").replace("sum(n)", "count(n)"))
    with pytest.raises(SubtaskDeclined, match="column n"):
        job.epoch()
    spec.write_text(landed)
    job.master.lifecycle.resume()
    job.land_and_run(2)
    job.epoch()  # the record that begins the log counted as one of two
    job.assert_tables(2)
