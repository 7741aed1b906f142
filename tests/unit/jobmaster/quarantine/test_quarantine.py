"""A quarantined object is read by no epoch and no replay until it is released."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.epoch import CheckpointMetadata, EpochPlan
from milepost.errors import InvalidRequest, NotFound, PlanOutdated
from milepost.jobmaster import NothingToDo, QuarantineResult, Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.health.source_checks import source_checks
from milepost.jobmaster.reports.health.sources import LeftOutObjects
from milepost.protocol.records import CheckpointId, ManifestState
from milepost.protocol.records.layout import manifest_key
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import decided
from milepost_testkit.jobs.sparkless.backfill_job import mortal_session
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

WHY = decided("a wrong file")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Three epochs of one object each. Not to be changed: `job` is a copy of it."""
    return CountedJob.with_epochs(tmp_path_factory.mktemp("prepared") / "job", 3)


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


def quarantine(job: CountedJob, number: int) -> QuarantineResult:
    approved = job.master.quarantine.plan("rows", f"{number:04}.csv").approved
    return job.master.quarantine.quarantine(Session.cli(), approved, WHY)


def release(job: CountedJob, number: int) -> QuarantineResult:
    approved = job.master.quarantine.plan_release("rows", f"{number:04}.csv").approved
    return job.master.quarantine.release(Session.cli(), approved, WHY)


def assert_tables_have(job: CountedJob, *numbers: int) -> None:
    assert sorted(job.consumed()) == [f"{number:04}.csv" for number in numbers]
    job.assert_tables_equal_the_oracle()


@pytest.mark.long
def test_an_unread_object_is_left_out_until_it_is_released(job: CountedJob) -> None:
    job.land([4, 5])
    result = quarantine(job, 4)
    assert (result.outcome, result.read_by, result.next_step) == ("quarantined", None, "milepost run small")
    job.run()
    assert_tables_have(job, 1, 2, 3, 5)
    waiting = job.run_one()
    assert isinstance(waiting, NothingToDo)
    assert waiting.message.endswith("source rows: 1 quarantined object not read, such as 0004.csv")
    sources = job.master.reports.status().sources
    assert sources is not None and sources["rows"].unread_objects == 0
    assert sources["rows"].quarantined == LeftOutObjects(1, ("0004.csv",))
    assert release(job, 4).outcome == "released"
    job.run()
    assert_tables_have(job, 1, 2, 3, 4, 5)


@pytest.mark.deep
def test_an_object_that_was_read_stays_in_tables_until_a_rollback_and_is_not_read_again(job: CountedJob) -> None:
    plan = job.master.quarantine.plan("rows", "0002.csv")
    ways = ("  milepost rollback small --to 1", "  milepost backfill small --from-checkpoint 1")
    assert (plan.read_by, plan.text[2:4]) == (2, ways)
    result = quarantine(job, 2)
    assert (result.read_by, result.next_step) == (2, "milepost rollback small --to 1")
    assert_tables_have(job, 1, 2, 3)
    job.rollback(1)
    job.run()
    assert_tables_have(job, 1, 3)


def test_the_commands_that_remove_its_rows_are_found_by_few_consumed_sets(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.land(range(4, 13))
    job.run(9)
    read: list[int] = []
    real = JobContext.base_metadata

    def counted(context: JobContext, state: ManifestState, at: CheckpointId) -> CheckpointMetadata | None:
        read.append(int(at))
        return real(context, state, at)

    monkeypatch.setattr(JobContext, "base_metadata", counted)
    ways = []
    for number in (1, 5, 12):
        read.clear()
        ways.append(job.master.quarantine.plan("rows", f"{number:04}.csv").text[2].strip())
        assert len(set(read)) <= 5, "of twelve"
    assert ways == [f"milepost rollback small --to {number - 1}" for number in (1, 5, 12)]


def test_doctor_and_lint_name_what_is_quarantined(job: CountedJob) -> None:
    job.land([4])
    quarantine(job, 2)
    quarantine(job, 4)
    (check,) = source_checks(job.small.loaded())
    assert (check.ok, check.suspicious) == (True, True)
    assert check.detail == "its path matches 4 objects; 2 objects quarantined, such as 0002.csv"


def test_a_damaged_head_fails_the_check_of_each_source_and_stops_no_other_check(job: CountedJob) -> None:
    newest = manifest_key(job.small.context.head().version)
    job.small.context.store.put(newest, b"{")
    (check,) = source_checks(job.small.loaded())
    assert (check.ok, check.suspicious) == (False, True)
    assert newest in check.detail


@pytest.mark.deep
def test_a_backfill_leaves_it_out_and_an_epoch_reads_it_after_its_release(job: CountedJob) -> None:
    quarantine(job, 2)
    back_fill(job.master, SparklessRunner(), from_checkpoint=1)
    assert_tables_have(job, 1, 3)
    assert isinstance(job.run_one(), NothingToDo)
    release(job, 2)
    job.run()
    assert_tables_have(job, 1, 2, 3)


@pytest.mark.long
def test_a_backfill_from_after_it_keeps_its_rows(job: CountedJob) -> None:
    quarantine(job, 1)
    back_fill(job.master, SparklessRunner(), from_checkpoint=1)
    assert_tables_have(job, 1, 2, 3)


def test_a_backfill_that_would_leave_out_all_input_is_refused_with_the_rollback_that_does_the_same(
    job: CountedJob,
) -> None:
    quarantine(job, 3)
    with pytest.raises(InvalidRequest, match="all that was read since checkpoint 2 is quarantined") as refused:
        job.master.backfills.plan(from_checkpoint=2)
    assert refused.value.hint == "a rollback removes its rows: milepost rollback small --to 2"
    job.rollback(2)
    assert isinstance(job.run_one(), NothingToDo)
    assert_tables_have(job, 1, 2)


@pytest.mark.deep
def test_a_release_during_a_backfill_lets_the_next_epoch_read_it(job: CountedJob) -> None:
    quarantine(job, 2)
    back_fill(job.master, SparklessRunner(after=lambda plan: release(job, 2)), from_checkpoint=1)
    assert_tables_have(job, 1, 3)
    job.run()
    assert_tables_have(job, 1, 2, 3)


def test_objects_released_and_read_during_a_backfill_are_replayed_with_it(job: CountedJob) -> None:
    """Its producer may have deleted the object before the fast-forward."""
    job.land([4])
    quarantine(job, 4)
    read_live = iter([True])

    def meanwhile(plan: EpochPlan) -> None:
        if next(read_live, False):
            release(job, 4)
            job.run()

    back_fill(job.master, SparklessRunner(meanwhile), from_checkpoint=1)
    assert_tables_have(job, 1, 2, 3, 4)


def test_what_start_latest_skips_cannot_be_quarantined(tmp_path: Path) -> None:
    job = CountedJob.create(
        tmp_path / "job", {"    path: ../landing/*.csv": "    start: latest\n    path: ../landing/*.csv"}
    )
    job.land([1])
    job.run_one()
    job.land([2])
    job.run()
    with pytest.raises(InvalidRequest, match="was there before the first epoch: `start: latest` skips it"):
        job.master.quarantine.plan("rows", "0001.csv")
    assert quarantine(job, 2).outcome == "quarantined"


@pytest.mark.deep
def test_a_quarantine_during_a_backfill_leaves_out_nothing_that_its_plan_reads(job: CountedJob) -> None:
    """The object counts as read then, and the next backfill leaves it out."""
    back_fill(job.master, SparklessRunner(after=lambda plan: quarantine(job, 3)), from_checkpoint=1)
    assert_tables_have(job, 1, 2, 3)
    back_fill(job.master, SparklessRunner(), from_checkpoint=1)
    assert_tables_have(job, 1, 2)


@pytest.mark.long
def test_an_unfinished_backfill_that_read_it_is_not_continued(job: CountedJob) -> None:
    """Its fork has rows of the object: another one begins."""

    def stop(plan: EpochPlan) -> None:
        if plan.inputs[0].objects[0].key == "0003.csv":
            raise KeyboardInterrupt

    with mortal_session() as session, pytest.raises(KeyboardInterrupt):
        back_fill(job.master, SparklessRunner(stop), session=session, from_checkpoint=1)
    assert job.master.backfills.plan(from_checkpoint=1).replayed_ranges == 1
    quarantine(job, 2)
    assert job.master.backfills.plan(from_checkpoint=1).replayed_ranges == 0
    back_fill(job.master, SparklessRunner(), from_checkpoint=1)
    assert_tables_have(job, 1, 3)


@pytest.mark.deep
def test_a_corrected_object_under_the_same_name_is_read(job: CountedJob) -> None:
    job.land([4])
    quarantine(job, 4)
    assert isinstance(job.run_one(), NothingToDo)
    job.small.land("0004.csv", "k,v\n0,40\n4,40\n-4,40\n")
    job.run()
    assert_tables_have(job, 1, 2, 3, 4)


def test_an_object_that_was_replaced_after_it_was_read_no_longer_stops_the_job(job: CountedJob) -> None:
    job.small.land("0002.csv", "k,v\n0,20\n")
    job.land([4])
    assert "changed after they were consumed" in str(job.master.reports.status().source_changed)
    quarantine(job, 2)
    job.run()
    assert job.consumed() == ["0001.csv", "0002.csv", "0003.csv", "0004.csv"]


def test_a_plan_for_a_version_that_was_replaced_since_changes_nothing(job: CountedJob) -> None:
    job.land([4])
    approved = job.master.quarantine.plan("rows", "0004.csv").approved
    job.small.land("0004.csv", "k,v\n0,40\n4,40\n-4,40\n")
    with pytest.raises(PlanOutdated, match="was replaced since the plan"):
        job.master.quarantine.quarantine(Session.cli(), approved, WHY)
    job.run()
    assert_tables_have(job, 1, 2, 3, 4)


def test_a_release_is_planned_by_on_change_if_another_version_was_read(job: CountedJob) -> None:
    job.small.land("0002.csv", "k,v\n0,20\n")
    quarantine(job, 2)
    effect = "checkpoint 2 has read another version: the next epoch follows `on_change: fail` of the source"
    assert job.master.quarantine.plan_release("rows", "0002.csv").text[1] == effect


def test_a_release_of_a_version_that_was_replaced_in_quarantine_since_the_plan_changes_nothing(job: CountedJob) -> None:
    job.land([4])
    quarantine(job, 4)
    approved = job.master.quarantine.plan_release("rows", "0004.csv").approved
    job.small.land("0004.csv", "k,v\n0,40\n")
    quarantine(job, 4)
    with pytest.raises(PlanOutdated, match=r"another version .* was quarantined since the plan"):
        job.master.quarantine.release(Session.cli(), approved, WHY)
    assert isinstance(job.run_one(), NothingToDo)


def test_names_that_do_not_exist_are_refused_with_the_ones_that_do(job: CountedJob) -> None:
    with pytest.raises(NotFound, match=r"source rows has no object 0003\.cvs") as refused:
        job.master.quarantine.plan("rows", "0003.cvs")
    assert refused.value.hint.startswith("did you mean 0003.csv")
    with pytest.raises(NotFound, match="has no source row; sources of files: rows"):
        job.master.quarantine.plan("row", "0003.csv")


def test_a_second_quarantine_and_a_second_release_say_that_there_is_nothing_to_do(job: CountedJob) -> None:
    assert quarantine(job, 3).outcome == "quarantined"
    assert quarantine(job, 3).outcome == "already_quarantined"
    assert job.master.quarantine.plan("rows", "0003.csv").done
    assert release(job, 3).outcome == "released"
    plan = job.master.quarantine.plan_release("rows", "0003.csv")
    assert (plan.done, plan.text) == (True, ("object 0003.csv of source rows is not quarantined; quarantined: none",))
    assert release(job, 3).outcome == "not_quarantined"


def test_the_history_says_who_quarantined_what_and_why(job: CountedJob) -> None:
    quarantine(job, 3)
    release(job, 3)
    released, quarantined = job.master.reports.history_page(limit=2).acts
    assert quarantined.what == "quarantined object 0003.csv of source rows"
    assert (released.what, released.why, released.who) == (
        "released object 0003.csv of source rows", "a wrong file", WHY.actor,
    )  # fmt: skip
