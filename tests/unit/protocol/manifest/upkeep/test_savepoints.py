"""Savepoints: listed once their copy is complete, and a root of retention while listed (I8)."""

from __future__ import annotations

import pytest

from milepost.errors import CommitConflict, InvalidRequest, JobNotRunnable, NotFound, ProtocolViolation
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.transaction.events import SavepointCreated, SavepointDisposed
from milepost.protocol.manifest.upkeep.savepoints import MAX_SAVEPOINTS
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.ids import MAX_CHECKPOINT_ID, CheckpointId
from milepost.protocol.records.layout import copy_pin_name
from milepost.protocol.records.manifest_state import JobStatus
from milepost.protocol.retention.reach import GarbageKeys, ObjectStatus, object_status, proof
from milepost.protocol.retention.retention import RetentionPolicy, collectable, subsumable, unreferenced
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import MINUTE_MS, A, B, assert_refused, epochs


def test_a_savepoint_keeps_its_checkpoint_until_it_is_disposed_of() -> None:
    log = epochs(3)
    answer = log.record_savepoint(B, 1)
    assert isinstance(answer, Transition) and isinstance(answer.event, SavepointCreated)
    assert subsumable(log.state, RetentionPolicy(1)) == (2,)
    answer = log.dispose_savepoint(A)
    assert isinstance(answer, Transition) and isinstance(answer.event, SavepointDisposed)
    assert answer.event.savepoint.checkpoint_id == 1
    assert subsumable(log.state, RetentionPolicy(1)) == (1, 2)


def test_recording_or_disposing_twice_changes_nothing() -> None:
    log = epochs(1)
    log.record_savepoint(A, 1)
    again = log.record_savepoint(B, 1)
    assert isinstance(again, AlreadyDone) and again.outcome is Outcome.ALREADY_RECORDED
    log.dispose_savepoint(A)
    again = log.dispose_savepoint(A)
    assert isinstance(again, AlreadyDone) and again.outcome is Outcome.NO_SAVEPOINT


def test_a_name_is_taken_once() -> None:
    log = epochs(2)
    log.record_savepoint(A, 1)
    assert_refused(log, InvalidRequest, lambda: log.record_savepoint(A, 2))


CREATION = "0123456789abcdef" * 2
ROOT = f"savepoints/before/{CREATION}/"
INSIDE = ObjectHandle(f"{CREATION}/savepoint.json", 100, "d" * 64)


def test_a_disposed_savepoint_below_the_job_is_garbage_in_the_same_transition() -> None:
    """Whoever disposes of it may die before it has deleted anything: a later leader does."""
    log = epochs(1)
    log.pin(A, 1, copy_pin_name(ROOT))
    log.record_savepoint(A, 1, document=INSIDE)
    log.dispose_savepoint(A)
    (entry,) = log.state.garbage[-1:]
    assert (entry.prefix, entry.since_version) == (ROOT, log.state.version)
    late = entry.since_ms + 10
    assert entry in collectable(log.state, late, 10) and entry not in collectable(log.state, late, 11)


def test_a_savepoint_elsewhere_is_never_the_jobs_garbage() -> None:
    log = epochs(1)
    before = log.state.garbage
    log.record_savepoint(A, 1, location="s3://other/before", document=INSIDE)
    log.dispose_savepoint(A)
    assert log.state.garbage == before


def test_a_savepoint_whose_files_were_listed_as_garbage_is_refused() -> None:
    """Listed today they may be deleted tomorrow: the record must not land on them."""
    log = epochs(1)
    log.list_garbage(B, (ROOT,))
    assert_refused(log, CommitConflict, lambda: log.record_savepoint(A, 1, document=INSIDE))


def test_a_savepoint_below_the_job_is_recorded_only_while_the_pin_of_its_copy_is_listed() -> None:
    """Whoever took the pin off the list may have deleted the files, and forgotten them, since."""
    log = epochs(1)
    log.pin(A, 1, copy_pin_name(ROOT))
    log.now_ms += MINUTE_MS
    log.list_garbage(B, (ROOT,))
    assert log.state.pins == ()
    log.now_ms += MINUTE_MS
    log.forget_collected(B, (ROOT,), MINUTE_MS)
    assert ROOT not in [entry.prefix for entry in log.state.garbage]
    assert_refused(log, CommitConflict, lambda: log.record_savepoint(A, 1, document=INSIDE))


def test_files_of_a_listed_or_currently_copied_savepoint_are_not_garbage() -> None:
    log = epochs(1)
    log.pin(A, 1, copy_pin_name(ROOT))
    log.record_savepoint(A, 1, document=INSIDE)
    log.unpin(A, copy_pin_name(ROOT))
    assert_refused(log, ProtocolViolation, lambda: log.list_garbage(B, (ROOT,)))
    other = f"savepoints/other/{CREATION}/"
    log.pin(A, 1, copy_pin_name(other))
    assert_refused(log, ProtocolViolation, lambda: log.list_garbage(B, (other,)))


@pytest.mark.parametrize("entry", ["savepoints/", "savepoints/before/", ROOT + "_metadata", "savepoints/A/" + CREATION])
def test_of_a_savepoint_only_the_root_is_garbage(entry: str) -> None:
    log = epochs(1)
    assert_refused(log, ProtocolViolation, lambda: log.list_garbage(B, (entry,)))


def test_the_status_of_a_savepoints_objects() -> None:
    def listed() -> GarbageKeys:
        return GarbageKeys(frozenset(entry.prefix for entry in log.state.garbage))

    log = epochs(1)
    key = ROOT + "_metadata"
    assert object_status(log.state, key, {key}, listed()) is ObjectStatus.REFERENCED
    assert object_status(log.state, key, (), listed()) is ObjectStatus.UNREACHABLE
    wording.matches("problems", proof(key, None))
    assert object_status(log.state, "savepoints/README", (), listed()) is ObjectStatus.FOREIGN
    assert object_status(log.state, "savepoints/before/x/_metadata", (), listed()) is ObjectStatus.FOREIGN
    log.pin(A, 1, copy_pin_name(ROOT))
    assert object_status(log.state, key, (), listed()) is ObjectStatus.IN_USE
    log.unpin(A, copy_pin_name(ROOT))
    log.list_garbage(B, (ROOT,))
    assert object_status(log.state, key, (), listed()) is ObjectStatus.LISTED


def test_a_savepoint_is_garbage_as_a_whole_or_not_at_all() -> None:
    keys = [ROOT + "_metadata", ROOT + "savepoint.json"]
    assert unreferenced([], [keys]) == (ROOT,)
    assert unreferenced([keys[:1]], [keys]) == ()


def test_an_import_needs_a_fork_and_a_clean_end() -> None:
    """A finished incarnation never runs again (I4); what the next one starts from may be copied in before."""
    log = epochs(1)
    assert_refused(log, InvalidRequest, lambda: log.trigger(A, imports=True))
    log.cancel(A)
    log.fork(B, 0)
    fork = log.state.timelines[-1].timeline_id
    assert_refused(log, JobNotRunnable, lambda: log.trigger(B, timeline=fork, imports=True))
    log.clean(A)
    assert_refused(log, JobNotRunnable, lambda: log.trigger(B, timeline=fork))
    below = CheckpointId(-1)
    assert_refused(log, InvalidRequest, lambda: log.trigger(B, timeline=fork, imports=True, above=below))
    huge = MAX_CHECKPOINT_ID
    assert_refused(log, InvalidRequest, lambda: log.trigger(B, timeline=fork, imports=True, above=huge))
    log.trigger(B, timeline=fork, imports=True, above=41)
    pending = log.pending_on(fork)
    assert (pending.checkpoint_id, log.state.next_checkpoint_id) == (42, 43), "what is copied may hold names from ids"
    log.complete(B, pending)
    log.rollback(B, int(pending.checkpoint_id))
    assert log.state.status is JobStatus.CANCELED and log.state.timeline().head == pending.checkpoint_id


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "..", "a b", "x" * 64, "ü", "A", "42", "a.b"])
def test_a_name_that_could_not_be_part_of_a_key_is_refused(name: str) -> None:
    log = epochs(1)
    assert_refused(log, InvalidRequest, lambda: log.record_savepoint(A, 1, name))


@pytest.mark.parametrize(
    ("location", "match"),
    [("copies/x", "absolute URL"), ("/copies", "absolute URL"), ("ftp://x/y", "ftp"), ("s3://!", "bucket")],
)
def test_a_place_that_is_no_url_is_refused(location: str, match: str) -> None:
    log = epochs(1)
    assert_refused(log, InvalidRequest, lambda: log.record_savepoint(A, 1, location=location))


@pytest.mark.parametrize("location", ["s3://bucket/copies/x", "file:///copies/x"])
def test_a_savepoint_may_be_stored_anywhere(location: str) -> None:
    log = epochs(1)
    log.record_savepoint(A, 1, location=location)
    assert log.state.savepoints[0].location == location


def test_a_document_outside_of_the_savepoint_is_refused() -> None:
    log = epochs(1)
    outside = ObjectHandle("../savepoint.json", 1, "a")
    assert_refused(log, InvalidRequest, lambda: log.record_savepoint(A, 1, document=outside))


@pytest.mark.parametrize("checkpoint_id", [0, 2, 9])
def test_a_savepoint_of_a_checkpoint_that_is_not_retained_is_not_found(checkpoint_id: int) -> None:
    log = epochs(1)
    assert_refused(log, NotFound, lambda: log.record_savepoint(A, checkpoint_id))


def test_only_so_many_savepoints_are_listed() -> None:
    log = epochs(1)
    for number in range(MAX_SAVEPOINTS):
        log.record_savepoint(A, 1, f"s{number:03d}")
    error = assert_refused(log, InvalidRequest, lambda: log.record_savepoint(A, 1, "more"))
    assert "dispose" in error.hint


def test_savepoints_are_listed_by_name() -> None:
    log = epochs(1)
    for name in ("b", "c", "a"):
        log.record_savepoint(A, 1, name)
    assert [one.name for one in log.state.savepoints] == ["a", "b", "c"]
