"""Landed rows that prove false are voided by a person, and epochs skip them or stop (L8)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from milepost.errors import (
    CommitOutcomeUnknown,
    InputVoided,
    InvalidRequest,
    JobNotRunnable,
    NotFound,
    PlanOutdated,
    SourceUnreachable,
)
from milepost.jobmaster import NothingToDo, Session
from milepost.protocol.landed.records import LogRecord, RecordKind, StoredRecord
from milepost.storage.log.source_log import SourceLog
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.called_store import WRITES
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore
from milepost_testkit.stores.hooked_store import HookedStore


class Killed(BaseException):
    """The process ended here."""


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    """Checkpoints 1 and 2 have read record 2 (rows 0 to 2) and 3 (rows 3 to 5). The system went back to 4."""
    job = LandedJob.create(tmp_path)
    job.land_and_run(1, 2, 3)
    job.land_and_run(1, 1, 1)
    job.go_back(4)
    return job


def newest(job: LandedJob) -> StoredRecord:
    stored = SourceLog(job.context.store, "feed").newest()
    assert stored is not None
    return stored


def records(job: LandedJob) -> list[LogRecord]:
    log = SourceLog(job.context.store, "feed")
    return [stored.record for stored in log.since(None, newest(job))]


@pytest.mark.deep
def test_a_source_that_went_back_stops_the_landing_which_names_the_command(job: LandedJob) -> None:
    (failed,) = job.land().failed
    assert failed.error == "SourceWentBack"
    assert failed.hint.endswith("are void: milepost land landed --source feed --void-from auto")
    assert len(records(job)) == 3


@pytest.mark.deep
def test_a_plan_names_the_records_and_the_rollback_and_changes_nothing(job: LandedJob) -> None:
    plan = job.master.voids.plan("feed", "auto")
    assert (plan.approved.void_from, plan.end, len(records(job))) == (3, {"next": 3}, 3)
    assert plan.reason == "there are 4 rows"
    assert plan.text[0].startswith("the log ends with record 3: 6 rows, the newest record of ")
    assert plan.text[1:] == (
        "false: there are 4 rows",
        "record 3 of its log is void, with 3 rows",
        "landing continues from before that: next: 6 -> 3",
        "checkpoint 2 has read some of them: after this, milepost rollback landed --to 1",
        "all timelines and replays skip void records; `milepost input landed feed --at N` still shows them",
    )


def test_the_log_continues_from_the_newest_true_record_and_epochs_read_true_rows(job: LandedJob) -> None:
    done = job.void()
    assert (done.sequence, done.void_from, done.end, done.approved_by) == (4, 3, {"next": 3}, "by a test")
    job.produce(2, 2)
    assert job.land().failed == ()
    with wording.raises(InputVoided) as stopped:
        job.epoch()
    details = stopped.value.details
    assert (details["checkpoint_id"], details["void_from"], details["rollback_to"]) == (2, 3, 1)
    job.roll_back(1)
    job.epoch()
    job.assert_tables(6)
    read = job.master.reports.show(3).sources["feed"].read
    assert read is not None and (of := read.records) is not None
    assert (of.first, of.last, of.voids, of.skipped) == (3, 5, 1, 1)


@pytest.mark.deep
def test_a_checkpoint_from_before_the_void_records_goes_on_without_a_rollback(tmp_path: Path) -> None:
    job = LandedJob.create(tmp_path)
    job.land_and_run(1, 2, 3)
    job.produce(1, 1)
    job.land()
    job.go_back(3)
    job.produce(3)
    job.void()
    assert isinstance(job.epoch(), NothingToDo), "a void record begins no epoch"
    job.land()
    job.epoch()
    job.assert_tables(4)


@pytest.mark.deep
@pytest.mark.parametrize("up_to", [2, 3, 4])
def test_a_run_up_to_a_record_that_is_void_by_then_reads_the_records_before_it(tmp_path: Path, up_to: int) -> None:
    job = LandedJob.create(tmp_path, {"max_records: 2": "max_records: 9"})
    job.produce(1, 2, 3)
    job.land()
    job.produce(1)
    job.land()
    job.go_back(3)
    job.void()
    job.produce(5)
    job.land()
    job.master.epochs.run(Session.cli(), SparklessRunner(), up_to={"feed": up_to})
    position = job.position()
    assert position is not None and position.next == {2: 3, 3: 3, 4: 5}[up_to]
    job.epoch()
    job.assert_tables(4)


@pytest.mark.deep
def test_a_source_may_go_back_again_to_before_an_earlier_void_record(job: LandedJob) -> None:
    job.void()
    job.produce(2)
    job.land()
    job.go_back(1)
    done = job.void()
    assert (done.void_from, [(span.first, span.end) for span in newest(job).record.voids]) == (2, [(2, 6)])
    job.produce(4, 4)
    job.land()
    with wording.raises(InputVoided) as stopped:
        job.epoch()
    assert stopped.value.details["rollback_to"] is None
    job.roll_back(0)
    while not isinstance(job.epoch(), NothingToDo):
        pass
    job.assert_tables(3)


@pytest.mark.long
def test_a_gap_that_was_approved_by_mistake_is_void_once_the_data_is_there(tmp_path: Path) -> None:
    job = LandedJob.create(tmp_path)
    job.land_and_run(1, 2, 3)
    job.produce(5, 5, 5)
    before = (job.folder / "feed.json").read_text()
    job.expire(2)
    job.approve_gap()
    job.land()
    with wording.raises(InvalidRequest):
        job.void("3")  # what the gap passes is still lost
    (job.folder / "feed.json").write_text(before)
    with wording.raises(InvalidRequest):
        job.void("auto")
    with wording.raises(InvalidRequest):
        job.void("4")
    done = job.void("3")
    assert (done.sequence, done.end, done.reason) == (5, {"next": 3}, "gap 3 was approved by mistake")
    job.land()
    job.epoch()
    job.assert_tables(6)
    assert job.lost_rows == []


@pytest.mark.long
def test_false_rows_are_accepted_where_no_checkpoint_from_before_them_is_retained(tmp_path: Path) -> None:
    job = LandedJob.create(tmp_path)
    job.land_and_run(1, 2, 3)
    job.go_back(1)
    job.produce(7, 7)
    job.void()
    job.land()
    with wording.raises(InputVoided) as stopped:
        job.epoch()
    assert stopped.value.hint.endswith("milepost land landed --source feed --accept-void")
    plan = job.master.voids.plan_acceptance("feed")
    assert (plan.approved.accepts, plan.reason) == (True, "3 rows were read before they were void")
    done = job.accept_void()
    assert (newest(job).record.kind, done.sequence, done.void_from) == (RecordKind.ACCEPT, 5, 2)
    job.epoch()
    rows = job.master.reports.read("rows").select(["k", "n"]).sort_by([("n", "ascending"), ("k", "ascending")])
    assert rows.to_pylist() == [{"k": k, "n": n} for k, n in ((1, 0), (1, 0), (2, 1), (7, 1), (3, 2), (7, 2))]
    with wording.raises(InvalidRequest):
        job.accept_void()


@pytest.mark.deep
def test_an_acceptance_names_the_rollback_that_would_remove_the_false_rows(job: LandedJob) -> None:
    job.void()
    text = job.master.voids.plan_acceptance("feed").text
    assert "a rollback would remove them instead: milepost rollback landed --to 1" in text


def test_a_backfill_over_accepted_false_rows_reads_only_true_rows(job: LandedJob) -> None:
    job.void()
    job.produce(8)
    job.land()
    with wording.raises(InputVoided):
        job.backfill(from_checkpoint=1)
    job.accept_void()
    job.epoch()
    job.backfill(from_checkpoint=1)
    job.assert_tables(5)
    job.master.reports.verify(deep=True)


@pytest.mark.long
@pytest.mark.parametrize("void_from", ["newest", "-1", "1.5", "", "0", "1", "5", "9" * 30])
def test_what_is_no_record_that_can_be_void_is_refused(job: LandedJob, void_from: str) -> None:
    with wording.raises(InvalidRequest):
        job.void(void_from)


def test_a_record_after_the_first_false_one_cannot_be_void_alone(job: LandedJob) -> None:
    job.go_back(1)
    with wording.raises(InvalidRequest):
        job.void("3")
    assert job.void("2").void_from == 2


@pytest.mark.deep
def test_a_record_before_the_first_false_one_can_be_void_as_well(job: LandedJob) -> None:
    assert job.void("2").end == {"next": 0}


def test_a_record_that_is_void_or_follows_a_void_one_is_refused(job: LandedJob) -> None:
    job.void("2")
    job.go_back(0)
    for number in ("3", "4"):
        with wording.raises(InvalidRequest):
            job.void(number)


@pytest.mark.long
def test_a_log_whose_records_are_all_false_is_refused(tmp_path: Path) -> None:
    job = LandedJob.create(tmp_path, {"    event_time: at": "    event_time: at\n    land: {retain: 0s}"})
    spec = job.folder / "config" / "landed.yaml"
    spec.write_text(spec.read_text().replace("retained: {last: 50}", "retained: {last: 1}"))
    for key in range(6):
        job.land_and_run(key)
    floor = job.context.source_log("feed").floor
    assert floor is not None
    job.go_back(floor.at["next"] - 1)
    with wording.raises(InvalidRequest):
        job.void()


@pytest.mark.deep
def test_the_first_retained_record_can_be_void(tmp_path: Path) -> None:
    job = LandedJob.create(tmp_path, {"    event_time: at": "    event_time: at\n    land: {retain: 0s}"})
    spec = job.folder / "config" / "landed.yaml"
    spec.write_text(spec.read_text().replace("retained: {last: 50}", "retained: {last: 1}"))
    for key in range(6):
        job.land_and_run(key)
    floor = job.context.source_log("feed").floor
    assert floor is not None
    job.go_back(floor.at["next"])
    done = job.void()
    assert (done.void_from, done.end) == (floor.next, floor.at)


@pytest.mark.long
def test_a_log_goes_on_from_no_void_record_although_its_floor_is_at_one(job: LandedJob) -> None:
    job.void()
    job.accept_void()
    spec = job.folder / "config" / "landed.yaml"
    spec.write_text(
        spec.read_text()
        .replace("retained: {last: 50}", "retained: {last: 2}")
        .replace("    event_time: at", "    event_time: at\n    land: {retain: 0s}")
    )
    job.land_and_run(7)
    floor = job.context.source_log("feed").floor
    assert floor is not None and (floor.next, floor.at) == (4, {"next": 6}), "after record 3, which is void"
    feeds = job.folder / "config" / "feeds.py"
    is_there = 'is_there = position["next"] <= latest["next"]'
    feeds.write_text(feeds.read_text().replace(is_there, 'is_there = position["next"] == 6'))
    feed = job.folder / "feed.json"
    feed.write_text(re.sub(r'"lives": \[.*?\]', '"lives": []', feed.read_text()))
    with wording.raises(InvalidRequest) as refused:
        job.void()
    assert "has changed before all retained records" in refused.value.message


def test_a_source_that_cannot_name_a_true_position_is_refused(job: LandedJob) -> None:
    with patch("milepost.jobmaster.landing.false_records.RewindableSource", int), wording.raises(InvalidRequest):
        job.void()


@pytest.mark.long
def test_an_approval_is_outdated_once_the_log_has_moved(job: LandedJob) -> None:
    approved = job.master.voids.plan("feed", "auto").approved
    job.master.voids.approve(approved, "by a test")
    with wording.raises(PlanOutdated):
        job.master.voids.approve(approved, "by a test")
    found = job.master.voids.find(approved)
    assert found is not None and found.sequence == 4
    assert job.master.voids.find(replace(approved, accepts=True)) is None
    assert job.master.voids.find(replace(approved, sequence=9)) is None


def test_an_approval_is_refused_once_the_external_system_is_where_the_log_ends(job: LandedJob) -> None:
    feed = job.folder / "feed.json"
    approved = job.master.voids.plan("feed", "auto").approved
    feed.write_text(
        feed.read_text().replace(', "lives": [4]', "").replace('"rows": [1, 2, 3, 1]', '"rows": [1, 2, 3, 1, 1, 1]')
    )
    with wording.raises(InvalidRequest):
        job.master.voids.approve(approved, "by a test")
    assert len(records(job)) == 3


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
def test_an_approval_that_was_killed_is_found_or_repeated(job: LandedJob, after: bool) -> None:
    approved, dying = job.master.voids.plan("feed", "auto").approved, job.master

    def kill(operation: str, key: str) -> None:
        if operation in WRITES:
            raise Killed

    hooks: dict[str, Callable[[str, str], None]] = {"after" if after else "before": kill}
    dying.context.__dict__["store"] = HookedStore(dying.context.store, **hooks)
    with pytest.raises(Killed):
        dying.voids.approve(approved, "by a test")
    assert (job.master.voids.find(approved) is not None) == after
    if not after:
        job.master.voids.approve(approved, "by a test")
    assert [record.kind for record in records(job)].count(RecordKind.VOID) == 1


def test_an_approval_whose_reply_is_lost_may_be_stored(job: LandedJob) -> None:
    approved, master = job.master.voids.plan("feed", "auto").approved, job.master
    fault = Fault(lambda operation, _: operation in WRITES, Effect.UNAVAILABLE, 0)
    master.context.__dict__["store"] = FaultyStore(master.context.store, [fault])
    with contextlib.suppress(CommitOutcomeUnknown):
        master.voids.approve(approved, "by a test")
    if job.master.voids.find(approved) is None:
        job.master.voids.approve(approved, "by a test")
    assert newest(job).record.sequence == 4


def test_a_log_that_does_not_exist_or_of_a_job_that_ended_gets_no_void_record(job: LandedJob, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="has no source feeds"):
        job.master.voids.plan("feeds", "auto")
    approved = job.master.voids.plan("feed", "auto").approved
    job.master.savepoints.cancel()
    with pytest.raises(JobNotRunnable, match="is CANCELED"):
        job.master.voids.approve(approved, "by a test")


def test_an_external_system_that_does_not_answer_voids_nothing(job: LandedJob) -> None:
    feeds = job.folder / "config" / "feeds.py"
    feeds.write_text(
        feeds.read_text().replace(
            "    def partitions(self, start, end):\n", "    def partitions(self, start, end):\n        raise OSError\n"
        )
    )
    with pytest.raises(SourceUnreachable):
        job.void()


@pytest.mark.long
def test_reports_name_the_void_records(job: LandedJob) -> None:
    job.void()
    status = job.master.reports.status()
    assert status.source_changed is not None and "milepost rollback landed --to 1" in status.source_changed
    job.produce(2)
    job.land()
    job.roll_back(1)
    log = job.master.reports.status().sources["feed"].log
    assert (log.voids, log.void_records, log.unread_records, log.unread_rows, log.rows) == (1, 1, 2, 2, 5)
    rows = job.master.landings.rows("feed", 3)
    assert (rows.void_since, rows.rows.num_rows) == (4, 3)
    assert job.master.landings.rows("feed", 4).void_since is None
    assert job.master.landings.rows("feed").record.sequence == 5


@pytest.mark.deep
def test_stored_objects_of_void_records_are_retained_and_checked(job: LandedJob) -> None:
    job.void()
    audit = job.master.reports.fsck()
    assert (audit.exit_code, audit.foreign, audit.unreachable) == (0, (), ())
    job.master.reports.verify(deep=True)
