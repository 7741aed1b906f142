"""A log continues after lost data only by a gap that a person approved for its newest record (L7)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.errors import CommitOutcomeUnknown, InvalidRequest, JobNotRunnable, NotFound, PlanOutdated, StateCorrupt
from milepost.jobmaster import JobMaster, NothingToDo
from milepost.jobspec.load.load import load_job
from milepost.protocol.landed.records import RecordKind, StoredRecord
from milepost.protocol.records.layout import landed_record_key
from milepost.storage.log.source_log import SourceLog
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.specs.spec_edits import edit_spec
from milepost_testkit.stores.called_store import WRITES
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore
from milepost_testkit.stores.hooked_store import HookedStore

BIDS = """\
name: bids
storage: store
sources:
  bids: {format: nexmark, events: bid, total: 10}
sinks:
  - {name: bids, input: bids, format: parquet, path: lake/bids, mode: append}
"""


class Killed(BaseException):
    """The process of the approval ended here."""


@pytest.fixture
def job(tmp_path: Path) -> LandedJob:
    """A job that has read 3 rows, and whose external system has lost 2 of the 4 rows after that."""
    job = LandedJob.create(tmp_path)
    job.land_and_run(1, 2, 1)
    job.produce(3, 3, 1, 2)
    job.expire(2)
    return job


def newest(job: LandedJob) -> StoredRecord:
    stored = SourceLog(job.context.store, "feed").newest()
    assert stored is not None
    return stored


def state(job: LandedJob) -> str:
    return (job.folder / "feed.json").read_text()


@pytest.mark.long
def test_whether_a_deleted_record_was_the_gap_is_not_guessed(job: LandedJob) -> None:
    edits = {
        "retained: {last: 50}": "retained: {last: 1}",
        "    event_time: at": "    event_time: at\n    land: {retain: 0s}",
    }
    edit_spec(job.folder / "config" / "landed.yaml", edits)
    approved = job.master.gaps.plan("feed", "earliest").approved
    job.master.gaps.approve(approved, "by a test")
    assert job.master.gaps.find(approved) is not None
    for key in range(4):
        job.land_and_run(key)
    floor = job.context.source_log("feed").floor
    assert floor is not None and floor.next > approved.sequence + 1
    job.context.store.delete([landed_record_key("feed", approved.sequence + 1)])
    with wording.raises(PlanOutdated):
        job.master.gaps.find(approved)


def test_the_plan_states_the_loss_and_where_the_log_would_continue(job: LandedJob) -> None:
    before, feed = newest(job), state(job)
    plan = job.master.gaps.plan("feed", "earliest")
    assert (plan.start, plan.approved.end, plan.approved.digest) == ({"next": 3}, {"next": 5}, before.digest)
    wording.matches("land", plan.text, replace=wording.TIMES)
    assert (newest(job), state(job)) == (before, feed), "a plan changes nothing"


def test_an_approval_appends_one_record_and_acknowledges_nothing(job: LandedJob) -> None:
    before, feed = newest(job), state(job)
    done = job.approve_gap()
    record = newest(job).record
    assert (record.kind, record.sequence, record.previous) == (RecordKind.GAP, 3, before.digest)
    assert (record.start, record.end, done.sequence) == ({"next": 3}, {"next": 5}, 3)
    assert record.gap is not None
    assert (record.gap.reason, record.gap.approved_by) == ("rows before 5 were deleted", "by a test")
    assert state(job) == feed, "the next landing acknowledges it"


@pytest.mark.long
def test_a_landing_an_epoch_a_rollback_and_a_backfill_pass_a_gap_without_another_approval(job: LandedJob) -> None:
    assert isinstance(job.epoch(), NothingToDo)
    job.approve_gap()
    assert isinstance(job.epoch(), NothingToDo), "a gap begins no epoch"
    assert not job.land().failed and job.left == 0
    result = job.epoch()
    assert not isinstance(result, NothingToDo)
    assert job.lost_rows == [3, 4]
    job.assert_tables(5)
    read = job.master.reports.show(int(result.checkpoint_id)).sources["feed"].read
    assert read is not None and read.records is not None
    assert (read.records.first, read.records.last, read.records.gaps) == (3, 4, 1)
    job.roll_back(0)
    while not isinstance(job.epoch(), NothingToDo):
        pass
    job.assert_tables(5)
    job.backfill(from_checkpoint=0)
    job.assert_tables(5)
    assert (job.master.reports.fsck().exit_code, job.master.reports.verify(deep=True).deep) == (0, True)
    assert job.land().failed == ()


@pytest.mark.deep
def test_rows_around_a_gap_that_arrive_later_are_read(job: LandedJob) -> None:
    job.approve_gap()
    job.land_and_run(2, 2)
    job.expire(1)
    job.produce(1)
    job.land_and_run(3)
    job.assert_tables(9)


@pytest.mark.deep
def test_the_source_may_lose_everything(job: LandedJob) -> None:
    job.expire(2)
    assert job.approve_gap().end == {"next": 7}
    assert not job.land().failed
    job.land_and_run(1)
    job.assert_tables(4)


def test_a_source_that_has_what_follows_its_log_loses_nothing(tmp_path: Path) -> None:
    job = LandedJob.create(tmp_path)
    job.land_and_run(1, 2, 1)
    job.produce(3)
    with wording.raises(InvalidRequest):
        job.master.gaps.plan("feed", "earliest")
    job.produce(3)
    job.expire(1)
    approved = job.master.gaps.plan("feed", "earliest").approved
    feed = json.loads(state(job))
    (job.folder / "feed.json").write_text(json.dumps({"deleted": 3, "rows": [3, *feed["rows"]]}))
    with pytest.raises(InvalidRequest, match="nothing is lost"):
        job.master.gaps.approve(approved, "by a test")
    assert not job.land().failed


def test_an_approval_is_outdated_once_the_log_has_moved(job: LandedJob) -> None:
    approved = job.master.gaps.plan("feed", "earliest").approved
    job.approve_gap()
    with wording.raises(PlanOutdated):
        job.master.gaps.approve(approved, "by a test")
    moved = newest(job)
    with pytest.raises(PlanOutdated, match="the gap that was approved no longer fits"):
        job.master.gaps.approve(replace(approved, sequence=moved.record.sequence), "by a test")
    assert newest(job) == moved


def test_an_approval_is_outdated_once_more_is_lost(job: LandedJob) -> None:
    approved, before = job.master.gaps.plan("feed", "earliest").approved, newest(job)
    job.expire(1)
    with pytest.raises(PlanOutdated, match="rows before 6 were deleted"):
        job.master.gaps.approve(approved, "by a test")
    assert newest(job) == before


def test_of_two_approvals_at_once_one_appends(job: LandedJob) -> None:
    approved, rival = job.master.gaps.plan("feed", "earliest").approved, []

    def approve_first(operation: str, key: str) -> None:
        if operation == "create" and not rival:
            rival.append(key)
            job.approve_gap()

    master = job.master
    master.context.__dict__["store"] = HookedStore(master.context.store, before=approve_first)
    with pytest.raises(PlanOutdated, match="a landing has appended record 3"):
        master.gaps.approve(approved, "by a test")
    assert newest(job).record.sequence == 3


@pytest.mark.parametrize("after", [False, True], ids=["before the record", "after the record"])
def test_a_kill_appends_the_gap_or_nothing(job: LandedJob, after: bool) -> None:
    def kill(operation: str, key: str) -> None:
        if operation in WRITES:
            raise Killed

    approved, feed, dying = job.master.gaps.plan("feed", "earliest").approved, state(job), job.master
    hooks = {"after": kill} if after else {"before": kill}
    dying.context.__dict__["store"] = HookedStore(dying.context.store, **hooks)
    with pytest.raises(Killed):
        dying.gaps.approve(approved, "by a test")
    assert (job.master.gaps.find(approved) is not None) == after
    assert (state(job), newest(job).record.sequence) == (feed, 3 if after else 2)


@pytest.mark.parametrize("effect", [Effect.LOST_REPLY, Effect.LOST_REQUEST])
def test_a_lost_reply_appends_the_gap_once_or_says_that_it_is_unknown(job: LandedJob, effect: Effect) -> None:
    approved, master = job.master.gaps.plan("feed", "earliest").approved, job.master
    fault = Fault(lambda operation, _: operation in WRITES, effect, 0)
    master.context.__dict__["store"] = FaultyStore(master.context.store, [fault])
    try:
        master.gaps.approve(approved, "by a test")
    except CommitOutcomeUnknown:
        assert effect is Effect.LOST_REQUEST
    assert (job.master.gaps.find(approved) is None) == job.is_expired
    if job.is_expired:
        job.master.gaps.approve(approved, "by a test")
    assert newest(job).record.sequence == 3


@pytest.mark.parametrize("where", ["latest", "2026-03-01T00:00:00Z"])
def test_a_python_source_goes_on_from_earliest_only(job: LandedJob, where: str) -> None:
    with wording.raises(InvalidRequest):
        job.master.gaps.plan("feed", where)


def test_a_python_source_whose_first_position_is_lost_too_is_refused(job: LandedJob) -> None:
    feeds = job.folder / "config" / "feeds.py"
    feeds.write_text(feeds.read_text().replace("return self.bounds()[0]\n", 'return {"next": 4}\n', 1))
    with wording.raises(InvalidRequest):
        job.master.gaps.plan("feed", "earliest")


def test_what_is_neither_a_word_nor_a_time_is_refused(job: LandedJob) -> None:
    with wording.raises(InvalidRequest):
        job.master.gaps.plan("feed", "newest")


def test_a_source_that_has_landed_nothing_has_no_gap(tmp_path: Path) -> None:
    job = LandedJob.create(tmp_path)
    with pytest.raises(NotFound, match="nothing is stored"):
        job.master.gaps.plan("feed", "earliest")
    with pytest.raises(NotFound, match="has no source feeds"):
        job.master.gaps.plan("feeds", "earliest")


def test_the_log_of_a_job_that_has_ended_gets_no_gap(job: LandedJob) -> None:
    approved = job.master.gaps.plan("feed", "earliest").approved
    job.master.savepoints.cancel()
    with pytest.raises(JobNotRunnable, match="is CANCELED"):
        job.master.gaps.approve(approved, "by a test")


def test_a_log_that_lost_what_the_job_has_read_gets_no_gap(job: LandedJob) -> None:
    """Its rows may be in a copy of the store: they are not lost."""
    log = SourceLog(job.context.store, "feed")
    job.context.store.delete([landed_record_key("feed", newest(job).record.sequence)])
    assert log.newest() is not None
    with pytest.raises(StateCorrupt):
        job.master.gaps.plan("feed", "earliest")


def test_a_format_that_has_no_position_to_go_on_from_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "bids.yaml").write_text(BIDS)
    master = JobMaster(load_job(str(tmp_path / "bids.yaml")))
    assert not master.landings.land().failed
    with wording.raises(InvalidRequest):
        master.gaps.plan("bids", "earliest")
