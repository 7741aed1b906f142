"""Results of a job's incarnations: dirty, then permanently clean; a finished incarnation never runs again (I4).

Flink has a separate store for them. Here they are part of the manifest value, so every rule of that store is a rule of
the coordinator's transitions, and every write is one manifest version.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.codec.records import decode, encode
from milepost.errors import JobNotRunnable, NotFound, ProtocolViolation, StateCorrupt
from milepost.jobmaster import Session
from milepost.protocol.log.entry_codec import decode_entry, encode_entry
from milepost.protocol.log.log_entries import LogEntry
from milepost.protocol.manifest.timelines.incarnation import (
    MAX_RESULTS,
    add_dirty_result,
    dirty_results,
    mark_result_clean,
    result_of,
)
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.transaction.events import JobCanceled, JobCleaned, JobFinished
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.manifest_state import CleanUp, JobResult, JobStatus
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import A, B, JobLog, assert_refused
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob

End = Callable[[JobLog], object]


def canceled(log: JobLog) -> object:
    return log.cancel(A)


def finished(log: JobLog) -> object:
    log.epoch(A)
    return log.finish(A)


ENDS = pytest.mark.parametrize("end", [canceled, finished])


def result(incarnation: int = 1, clean_up: CleanUp = CleanUp.DIRTY) -> JobResult:
    return JobResult(incarnation, JobStatus.CANCELED, clean_up, 1, CheckpointId(0), "enough")


@ENDS
def test_a_result_is_stored_dirty_by_the_transition_that_ends_the_incarnation(end: End) -> None:
    """Never run again begins with the end itself, not with its clean-up.

    Case: JobResultStoreContractTest.testHasJobResultEntryWithDirtyEntry
    Case: JobResultStoreContractTest.testGetDirtyResultsWithDirtyEntry
    """
    log = JobLog()
    assert isinstance(end(log), Transition)
    stored = result_of(log.state.results, 1)
    assert stored is not None and stored.clean_up is CleanUp.DIRTY
    assert dirty_results(log.state.results) == (stored,)
    assert_refused(log, JobNotRunnable, lambda: log.trigger(B))


@ENDS
def test_a_clean_result_is_still_a_result(end: End) -> None:
    """Case: JobResultStoreContractTest.testHasJobResultEntryWithCleanEntry"""
    log = JobLog()
    end(log)
    assert isinstance(log.clean(B), Transition)
    stored = result_of(log.state.results, 1)
    assert stored is not None and stored.clean_up is CleanUp.CLEAN
    assert dirty_results(log.state.results) == ()
    assert_refused(log, JobNotRunnable, lambda: log.trigger(B))


def test_a_job_that_has_not_ended_has_no_result() -> None:
    """Case: JobResultStoreContractTest.testHasJobResultEntryWithEmptyStore
    Case: JobResultStoreContractTest.testGetDirtyResultsWithNoEntry
    """
    log = JobLog()
    log.epoch(A)
    assert result_of(log.state.results, 1) is None
    assert dirty_results(log.state.results) == ()


def test_only_results_with_outstanding_clean_up_are_dirty() -> None:
    """Case: JobResultStoreContractTest.testGetDirtyResultsWithDirtyAndCleanEntry"""
    log = JobLog()
    log.cancel(A)
    log.clean(A)
    log.start(A)
    log.cancel(A)
    assert [one.clean_up for one in log.state.results] == [CleanUp.CLEAN, CleanUp.DIRTY]
    assert [one.incarnation for one in dirty_results(log.state.results)] == [2]


@ENDS
def test_an_incarnation_ends_once(end: End) -> None:
    """A second request finds the first end: the same end is already done, and a different one is refused.

    Case: JobResultStoreContractTest.testStoreJobResultsWithDuplicateIDsThrowsException
    """
    log = JobLog()
    end(log)
    before = log.state
    answer = log.cancel(B)
    assert isinstance(answer, AlreadyDone) and answer.outcome is Outcome.ALREADY_ENDED
    assert log.state is before
    with wording.raises(ProtocolViolation):
        add_dirty_result(log.state.results, result())
    if log.state.status is JobStatus.CANCELED:
        assert_refused(log, JobNotRunnable, lambda: log.finish(B))
    else:
        again = log.finish(B)
        assert isinstance(again, AlreadyDone) and again.outcome is Outcome.ALREADY_ENDED


@ENDS
def test_a_clean_incarnation_never_becomes_dirty_again(end: End) -> None:
    """Case: JobResultStoreContractTest.testStoreDirtyEntryForAlreadyCleanedJobResultThrowsException"""
    log = JobLog()
    end(log)
    log.clean(A)
    with wording.raises(ProtocolViolation):
        add_dirty_result(log.state.results, result())
    assert isinstance(log.cancel(A), AlreadyDone)
    assert dirty_results(log.state.results) == ()


def test_a_result_enters_as_dirty_only() -> None:
    with wording.raises(ProtocolViolation):
        add_dirty_result((), result(clean_up=CleanUp.CLEAN))


@ENDS
def test_cleaning_twice_is_fine(end: End) -> None:
    """Two commands may do the clean-up concurrently, and repeat it after a lost reply.

    Case: JobResultStoreContractTest.testCleaningDuplicateEntryThrowsNoException
    Case: FileSystemJobResultStoreFileOperationsTest.testCleanDirtyJobResultTwiceIsIdempotent
    """
    log = JobLog()
    end(log)
    assert isinstance(log.clean(A), Transition)
    answer = log.clean(B)
    assert isinstance(answer, AlreadyDone) and answer.outcome is Outcome.ALREADY_CLEAN


@pytest.mark.parametrize("incarnation", [0, 2])
def test_cleaning_an_incarnation_without_a_result_is_refused(incarnation: int) -> None:
    """Case: JobResultStoreContractTest.testCleaningNonExistentEntryThrowsException"""
    log = JobLog()
    assert_refused(log, NotFound, lambda: log.clean(A, 1))
    log.cancel(A)
    assert_refused(log, NotFound, lambda: log.clean(A, incarnation))


def test_a_result_is_not_clean_while_a_completed_checkpoint_is_unpublished() -> None:
    """I8: published data is never lost, also not by an end."""
    log = JobLog()
    log.epoch(A, confirm=False)
    log.cancel(B)
    assert_refused(log, JobNotRunnable, lambda: log.clean(B))
    log.confirm(B, 1)
    assert isinstance(log.clean(B), Transition)


def test_a_start_waits_for_the_clean_up_and_opens_the_next_incarnation() -> None:
    """I4: `start` is the only way on, and it continues the head; failures belong to the incarnation that is over."""
    log = JobLog()
    log.epoch(A)
    log.trigger(A)
    log.cancel(B)
    assert_refused(log, JobNotRunnable, lambda: log.start(B))
    log.clean(B)
    assert isinstance(log.start(B), Transition)
    assert (log.state.incarnation, log.state.status) == (2, JobStatus.RUNNING)
    assert log.state.failures.last_reason is None
    assert isinstance(log.start(B), AlreadyDone)
    log.trigger(A)
    assert (log.pending.base, log.pending.checkpoint_id, log.pending.epoch) == (1, 3, 2)


def test_the_newest_results_are_retained() -> None:
    """I2: the manifest stays small; an incarnation below the current one is over, known or not."""
    log = JobLog()
    for _ in range(MAX_RESULTS + 3):
        log.cancel(A)
        log.clean(A)
        log.start(A)
    assert [one.incarnation for one in log.state.results] == list(range(4, MAX_RESULTS + 4))


# -- as bytes on a store ---------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path) -> SparklessJob:
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    return job


def manifest_files(job: SparklessJob) -> list[str]:
    return sorted(path.name for path in (job.folder / "store").rglob("manifest/*.json"))


def test_a_result_is_read_back_as_it_was_written() -> None:
    """Case: FileSystemJobResultStoreFileOperationsTest.testJobResultSerializationDeserialization"""
    log = JobLog()
    finished(log)
    (stored,) = log.state.results
    assert decode(JobResult, encode(stored), "result") == stored
    entry = LogEntry(log.state.version, "w", log.events[-1], log.state)
    assert decode_entry(encode_entry(entry)) == entry


def test_a_result_says_which_format_it_is_written_in() -> None:
    """An older or newer program must not guess.

    Case: FileSystemJobResultStoreFileOperationsTest.testVersionSerialization
    """
    log = JobLog()
    log.cancel(A)
    body = json.loads(encode_entry(LogEntry(log.state.version, "w", log.events[-1], log.state)))
    assert body["format"] == "milepost.entry/3"
    with wording.raises(StateCorrupt):
        decode_entry(json.dumps(body | {"format": "milepost.entry/4"}).encode())


@pytest.mark.parametrize(
    ("said", "clean_up"), [("dirty", CleanUp.DIRTY), ("clean", CleanUp.CLEAN), ("DIRTY", None), ("", None), ("x", None)]
)
def test_the_clean_up_of_a_result_is_stored_as_dirty_or_clean(said: str, clean_up: CleanUp | None) -> None:
    """Flink marks a dirty entry by its file name; here a field does, and nothing is guessed.

    Case: FileSystemJobResultStoreFileOperationsTest.testHasValidDirtyJobResultStoreEntryExtension
    Case: FileSystemJobResultStoreFileOperationsTest.testHasInvalidDirtyJobResultStoreEntryExtension
    Case: FileSystemJobResultStoreFileOperationsTest.testHasValidJobResultStoreEntryExtension
    Case: FileSystemJobResultStoreFileOperationsTest.testHasInvalidJobResultStoreEntryExtension
    """
    log = JobLog()
    log.cancel(A)
    body = json.loads(encode_entry(LogEntry(log.state.version, "w", log.events[-1], log.state)))
    body["state"]["results"][0]["clean_up"] = said
    if clean_up is None:
        with wording.raises(StateCorrupt):
            decode_entry(json.dumps(body).encode())
        return
    entry = decode_entry(json.dumps(body).encode())
    assert isinstance(entry, LogEntry)
    assert entry.state.results[0].clean_up is clean_up


def test_the_place_of_the_results_is_made_by_the_first_write_and_not_by_looking(job: SparklessJob) -> None:
    """Case: FileSystemJobResultStoreFileOperationsTest.testBaseDirectoryCreationOnResultStoreInitialization"""
    job.master.reports.status()
    assert manifest_files(job) == []
    job.trigger(Session.cli())
    assert manifest_files(job)


def test_the_end_and_its_clean_up_are_one_object_each(job: SparklessJob) -> None:
    """Each is created only if absent, under the next version's key; the dirty one's key stays taken (I1, I6), and no
    result is dirty any more.

    Case: FileSystemJobResultStoreFileOperationsTest.testStoreDirtyJobResultCreatesFile
    Case: FileSystemJobResultStoreFileOperationsTest.testStoreCleanJobResultCreatesFile
    Case: FileSystemJobResultStoreFileOperationsTest.testStoreCleanJobResultDeletesDirtyFile
    Case: FileSystemJobResultStoreFileOperationsTest.testValidEntryPathCreation
    """
    job.epoch()
    before, version = manifest_files(job), job.context.head().version
    job.master.savepoints.cancel()
    added = sorted(set(manifest_files(job)) - set(before))
    log = job.context.log
    assert added == [f"{10**19 - number:020d}.json" for number in (version + 2, version + 1)]
    dirty, clean = (log.entry(version + 1), log.entry(version + 2))
    assert isinstance(dirty, LogEntry) and isinstance(clean, LogEntry)
    assert isinstance(dirty.event, JobCanceled) and dirty_results(dirty.state.results) == dirty.state.results
    assert isinstance(clean.event, JobCleaned) and dirty_results(clean.state.results) == ()
    assert set(before) < set(manifest_files(job))


def test_a_finished_job_leaves_the_same_two_objects(job: SparklessJob) -> None:
    session = Session.cli()
    completed = job.complete(session, job.trigger(session))
    job.master.epochs.notify_complete(session, completed.checkpoint_id, "table")
    version = job.context.head().version
    job.master.lifecycle.finish(session)
    events = [type(job.context.log.entry(version + more).event) for more in (1, 2)]
    assert events == [JobFinished, JobCleaned]


def test_cleaning_changes_only_the_one_result() -> None:
    known = (result(1, CleanUp.CLEAN), result(2))
    assert mark_result_clean(known, 2) == (result(1, CleanUp.CLEAN), result(2, CleanUp.CLEAN))
    assert mark_result_clean(known, 1) == known
