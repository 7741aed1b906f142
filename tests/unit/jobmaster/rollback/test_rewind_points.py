"""Rewind points say of each checkpoint what going back would change, as its plan does, and read little for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import CheckpointError
from milepost.jobmaster import JobMaster, RewindPoint
from milepost.jobmaster.rollback.plan import RollbackPlan
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import SEEN_SINK, CountedJob
from milepost_testkit.stores.job_stores import hook_stores

EPOCHS = 5


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Five epochs; back to 2, three other ones: 6 to 8; back to 5; two more: 9 and 10. A savepoint of 8."""
    job = CountedJob.with_epochs(tmp_path_factory.mktemp("prepared") / "job", EPOCHS)
    job.rollback(2)
    job.run(3)
    job.master.savepoints.create("before")
    job.rollback(5)
    job.land(range(6, 8))
    job.run(2)
    return job


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


def points_of(job: CountedJob) -> dict[int, RewindPoint]:
    return {one.checkpoint_id: one for one in job.master.rollbacks.rewind_points()}


def assert_as_planned(point: RewindPoint, master: JobMaster) -> RollbackPlan:
    plan = master.rollbacks.plan(point.checkpoint_id)
    assert point.refused is None
    assert (point.runs_again, point.counts_as_read) == (plan.runs_again, plan.counts_as_read)
    assert point.discarded == tuple(one.checkpoint_id for one in plan.discarded)
    assert (point.operators, point.other_tables) == (plan.operators, plan.other_tables)
    assert point.spec == plan.spec
    for name, table in point.tables.items():
        sink = plan.sinks[name]
        assert sink.problem is None
        if table.exact:
            assert (table.rows_now, table.rows_then) == (sink.rows_now, sink.rows_then)
        else:
            assert table.rows_then >= sink.rows_then
    return plan


@pytest.mark.deep
def test_every_point_says_what_its_plan_says(job: CountedJob) -> None:
    """Of the live line, of one that was left, and of the empty state; the newest first."""
    points = points_of(job)
    assert list(points) == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    for point in points.values():
        assert_as_planned(point, job.master)
    assert {one.checkpoint_id for one in points.values() if not one.live} == {6, 7, 8}
    assert points[8].savepoints == ("before",) and points[7].savepoints == ()
    assert points[10].head and not points[9].head
    assert (points[10].runs_again, points[10].discarded) == ({}, ())


@pytest.mark.deep
def test_epochs_are_counted_where_retention_has_thinned_them_out(tmp_path: Path) -> None:
    """Retained are the last two and a savepoint: going back to it discards the epochs between, too."""
    job = CountedJob.with_epochs(tmp_path / "job", 1, {"last: 1": "last: 2"})
    job.master.savepoints.create("first")
    job.land(range(2, 7))
    job.run(5)
    points = points_of(job)
    assert list(points) == [6, 5, 1, 0]
    assert [one.epochs for one in points.values()] == [0, 1, 5, 6]
    assert points[1].runs_again is not None and points[1].runs_again["rows"].objects == 5


def test_a_job_that_has_never_run_has_no_points(tmp_path: Path) -> None:
    assert CountedJob.create(tmp_path / "job").master.rollbacks.rewind_points() == []


def test_a_limit_returns_only_the_newest_points(job: CountedJob) -> None:
    assert [one.checkpoint_id for one in job.master.rollbacks.rewind_points(3)] == [10, 9, 8]


@pytest.mark.long
def test_dropped_parts_of_the_spec_are_not_undone_and_misfits_are_reported(job: CountedJob) -> None:
    job.edit(SEEN_SINK, "")
    limits: set[str] = set()
    for point in points_of(job).values():
        planned = assert_as_planned(point, job.master).not_undone
        more = len(planned) - len(point.not_undone)
        assert planned[more:] == point.not_undone
        limits |= set(planned[:more])
    wording.matches("plan", sorted(limits))


def test_an_unreadable_point_has_its_error_and_the_others_are_listed(job: CountedJob) -> None:
    """As the plan refuses it, with the same error type; a head that cannot be read can still be rolled back."""
    state = job.small.context.head().state
    keys = {int(one.checkpoint_id): one.metadata.key for one in state.checkpoints}
    (job.small.folder / "store" / "small" / keys[4]).unlink()
    points = points_of(job)
    refused = points[4].refused
    assert refused is not None
    with pytest.raises(CheckpointError) as error:
        job.master.rollbacks.plan(4)
    assert refused.error == type(error.value).__name__ == "StateCorrupt"
    assert_as_planned(points[5], job.master)
    (job.small.folder / "store" / "small" / keys[10]).write_bytes(b"{}")
    points = points_of(job)
    assert points[10].refused is not None and points[5].refused is None
    assert (points[5].runs_again, points[5].tables["seen"].rows_now) == (None, None)
    assert points[5].tables["seen"].rows_then == job.master.rollbacks.plan(5).sinks["seen"].rows_then  # type: ignore[union-attr]


def test_a_table_that_was_elsewhere_refuses_as_the_plan_does(job: CountedJob) -> None:
    job.edit("../lake/seen", "../lake/elsewhere")
    refused = points_of(job)[5].refused
    with pytest.raises(CheckpointError) as error:
        job.master.rollbacks.plan(5)
    assert refused is not None and (refused.error, refused.message) == (type(error.value).__name__, error.value.message)


def test_a_list_reads_each_object_once_and_no_table(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata of each point, and the consumed runs of the head and its siblings: each is read once."""
    read: list[str] = []

    hook_stores(monkeypatch, before=lambda operation, key: read.append(f"{operation} {key}"))
    job.master.rollbacks.rewind_points()
    gets = [one for one in read if one.startswith("get") and "/manifest" not in one and "manifest/" not in one]
    assert len(gets) == len(set(gets))
    assert {one.rsplit("/", 1)[-1].split("-")[0] for one in gets} <= {"_metadata", "rows"}
    assert not any("lake" in one or "landing" in one or ".csv" in one for one in read)


def test_the_command_lists_them_and_says_how_to_choose_one(job: CountedJob) -> None:
    told = milepost("rollback", job.spec_path, "--points")
    assert told.exit_code == 0
    wording.matches("rollback", told.stdout)
    document = milepost("rollback", job.spec_path, "--points", "--json").document()
    assert [one["checkpoint_id"] for one in document["points"]] == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    unsaid = milepost("rollback", job.spec_path)
    assert unsaid.exit_code == 2 and "--points" in unsaid.stderr
    wording.matches("rollback", unsaid.stderr)
    assert job.small.context.head().state.timeline().head == 10
