"""A job grows old: the log is compacted while epochs run, entries stay small, and old questions are still answered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.errors import StoreUnavailable
from milepost.jobmaster import JobMaster, Session
from milepost.jobmaster.backfill.replay import lineage_since
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.garbage_collection import collect_garbage
from milepost.jobmaster.retention.log_compaction import ENTRIES_PER_EPOCH, compact_all, compact_some
from milepost.protocol.log.log_entries import LogEntry, Tombstone
from milepost.protocol.manifest.upkeep.compaction import horizon
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.layout import manifest_key
from milepost.protocol.records.object_store import ObjectStore
from milepost.storage.log.manifest_log import ManifestLog
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.sparkless_job import TIMEOUT_MS, SparklessJob
from milepost_testkit.stores.hooked_store import HookedStore
from milepost_testkit.stores.manifest_logs import MAX_TOMBSTONE_BYTES

HOUR_MS = 3_600_000


def run(job: SparklessJob, master: JobMaster, number: int) -> None:
    """One epoch, its subsumption and deletion included."""
    job.land(f"{number:06d}.csv")
    session = Session.cli()
    completed = job.complete(session, job.trigger(session))
    master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    master.epochs.subsume(session)


def grown(folder: Path, epochs: int) -> SparklessJob:
    job = SparklessJob.create(folder)
    master = job.master
    for number in range(epochs):
        run(job, master, number)
    return job


def kinds(context: JobContext) -> list[type]:
    return [type(entry) for entry in context.log.entries()]


def sizes(store: ObjectStore) -> dict[str, int]:
    return {stat.key: stat.size for stat in store.list("manifest/")}


@pytest.mark.long
def test_epochs_compact_entries_older_than_everything_retained(tmp_path: Path) -> None:
    """I6: no key is freed, the head stays whole, and the tombstones are small."""
    job = grown(tmp_path, 12)
    context = job.context
    head = context.head()
    whole = horizon(head.state)
    stored = sizes(context.store)
    assert len(stored) == head.version
    assert head.state.compacted > head.version // 2
    for version in range(1, head.version + 1):
        entry = context.log.entry(version)
        assert isinstance(entry, Tombstone) is (version <= head.state.compacted)
        if isinstance(entry, Tombstone):
            assert version < whole
            assert stored[manifest_key(version)] <= MAX_TOMBSTONE_BYTES


def test_a_compacted_log_answers_queries_about_old_versions(tmp_path: Path) -> None:
    """The lineage that a backfill from the empty state replays, the fates that an audit tells, lists and histories."""
    job = grown(tmp_path, 6)
    context = job.context
    ids = [int(one.checkpoint_id) for one in lineage_since(context, context.head().state.timeline().head, 0)]  # type: ignore[arg-type]
    assert ids == [1, 2, 3, 4, 5, 6]
    assert all(context.store.stat(one.plan.key).size == one.plan.size for one in lineage_since(context, 6, 0))  # type: ignore[arg-type]
    report = job.master.reports.fsck()
    assert (report.exit_code, report.damaged, report.missing, report.unreachable) == (0, (), (), ())
    assert [item.checkpoint_id for item in job.master.reports.list_checkpoints(None)] == [6, 5, 4, 3, 2, 1]
    assert roll_back(job.master, 0).outcome


@pytest.mark.deep
def test_an_old_log_of_large_entries_is_caught_up_with_and_a_collection_does_it_at_once(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    for number in range(4):
        job.land(f"{number}.csv")
        job.epoch()
    session = Session.cli()
    context = job.context
    before = context.head().state
    assert before.compacted == 0
    job.land("next.csv")
    completed = job.complete(session, job.trigger(session))
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    job.master.epochs.subsume(session)
    young = job.context.head()
    planned = collect_garbage(job.context, SessionId("gc"), TIMEOUT_MS, dry_run=True).compactable_entries
    assert job.context.head() == young, "a dry run changes nothing"
    collect_garbage(job.context, SessionId("gc"), TIMEOUT_MS)
    state = job.context.head().state
    assert state.compacted == horizon(state) - 1 == young.state.compacted + planned
    assert planned > 0
    again = job.context.head().version
    compact_all(job.context, SessionId("gc"))
    assert job.context.head().version == again, "nothing is left to do"


@pytest.mark.long
def test_a_compaction_that_breaks_off_anywhere_is_finished_by_the_next(tmp_path: Path) -> None:
    """The store fails before each write in turn: unreported work is done again, and no entry is lost."""
    job = grown(tmp_path / "job", 1)
    for number in range(1, 5):
        job.land(f"{number:06d}.csv")
        job.epoch()
    session = SessionId(job.context.head().state.timeline().leader.session_id)  # type: ignore[union-attr]
    job.master.epochs.subsume(replace(Session.cli(), session_id=session))
    context = job.context
    goal = horizon(context.head().state)
    for failing in range(goal):
        writes = 0

        def before(operation: str, key: str, failing: int = failing) -> None:
            nonlocal writes
            if operation == "put":
                writes += 1
                if writes > failing:
                    raise StoreUnavailable(f"{key}: no answer")

        log = ManifestLog(HookedStore(context.store, before), lambda: "w")
        through = log.compact(range(1, goal))
        assert all(isinstance(context.log.entry(version), Tombstone) for version in range(1, through + 1))
        assert isinstance(context.log.entry(context.head().version), LogEntry)
        assert [entry.version for entry in context.log.entries()] == list(range(context.head().version, 0, -1))
    assert context.log.compact(range(1, goal)) == goal - 1
    state = job.context.head().state
    assert compact_some(job.context, state) == min(goal - 1, state.compacted + ENTRIES_PER_EPOCH)


@pytest.mark.deep
def test_a_reader_that_meets_compaction_in_the_middle_sees_each_version_once(tmp_path: Path) -> None:
    """An entry or its tombstone, never corruption: here everything is compacted after the first read."""
    job = SparklessJob.create(tmp_path)
    for number in range(4):
        job.land(f"{number}.csv")
        job.epoch()
    session = SessionId(job.context.head().state.timeline().leader.session_id)  # type: ignore[union-attr]
    entries = job.context.log.entries()
    first = next(entries)
    job.master.epochs.subsume(replace(Session.cli(), session_id=session))
    compact_all(job.context, SessionId("gc"))
    assert [first.version, *(entry.version for entry in entries)] == list(range(first.version, 0, -1))


@pytest.mark.deep
def test_a_writer_that_lost_its_reply_still_knows_its_own_entry_by_its_tombstone(tmp_path: Path) -> None:
    """I1: its put of version 2 succeeded, the reply was lost, and meanwhile the log went on and was compacted."""
    job = grown(tmp_path, 4)
    store = job.context.store
    kept = job.context.log.entry(2)
    assert isinstance(kept, Tombstone)
    log = ManifestLog(store, lambda: kept.write_id)
    assert log.entry(2).write_id == kept.write_id


def test_a_collection_of_a_job_that_retains_nothing_ends(tmp_path: Path) -> None:
    """There each entry but the head may go, and to say so makes another one."""
    job = SparklessJob.create(tmp_path)
    for number in range(2):
        job.land(f"{number}.csv")
        session = Session.cli()
        job.master.epochs.abort(session, job.trigger(session).checkpoint_id, "TASK_FAILURE", "it failed")
        if number == 0:
            job.master.lifecycle.resume(session)
    before = job.context.head().version
    collect_garbage(job.context, SessionId("gc"), TIMEOUT_MS)
    assert job.context.head().state.compacted >= before - 1
    assert job.context.head().version <= before + 3
