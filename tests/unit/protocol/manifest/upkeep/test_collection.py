"""Garbage collection without leadership: listed on proof of one version, dropped once no reader can exist (I8)."""

from __future__ import annotations

from milepost.errors import CommitConflict, ProtocolViolation
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.transaction.events import GarbageListed
from milepost.protocol.manifest.upkeep.collection import MAX_LISTED
from milepost.protocol.retention.retention import collectable, deletable, minimum_grace_ms
from milepost_testkit.jobs.job_log import TIMEOUT_MS, A, B, JobLog, assert_refused, epochs

GRACE_MS = minimum_grace_ms(TIMEOUT_MS)


def stray(checkpoint_id: int = 1, token: int = 2, name: str = "late.parquet") -> str:
    return f"chk-{checkpoint_id:020d}/t{token:020d}/{name}"


def test_a_session_without_leadership_lists_objects_unreached_by_a_walk_of_this_version() -> None:
    log = epochs(2)
    leader = log.state.timeline().leader
    version = log.state.version
    answer = log.list_garbage(B, (stray(),))
    assert isinstance(answer, Transition)
    assert answer.event == GarbageListed(log.now_ms, version, (stray(),), B)  # type: ignore[arg-type]
    assert log.state.garbage[-1].prefix == stray()
    assert log.state.timeline().leader == leader, "it claims nothing and fences nobody"
    again = log.list_garbage(B, (stray(),), walked_version=version)
    assert isinstance(again, AlreadyDone)
    assert again.outcome is Outcome.NOTHING_TO_LIST


def test_a_walk_of_an_older_version_proves_nothing() -> None:
    """I1, I8: between the walk and the transition there is no version."""
    log = epochs(2)
    version = log.state.version
    log.trigger(B)
    assert_refused(log, CommitConflict, lambda: log.list_garbage(A, (stray(),), walked_version=version))


def test_objects_that_could_be_live_cannot_be_listed() -> None:
    log = epochs(2)
    head = log.state.head()
    assert head is not None
    assert_refused(log, ProtocolViolation, lambda: log.list_garbage(B, (head.metadata.key,)))
    log.trigger(A)
    pending = stray(log.pending.checkpoint_id, log.pending.token)
    assert_refused(log, ProtocolViolation, lambda: log.list_garbage(B, (pending,)))
    assert_refused(log, ProtocolViolation, lambda: log.list_garbage(B, ("inputs/" + "a" * 64 + ".json",)))


def test_the_list_is_bounded() -> None:
    """I2: the manifest value stays small."""
    log = epochs(2)
    many = tuple(stray(name=f"{number}.parquet") for number in range(MAX_LISTED + 1))
    assert_refused(log, ProtocolViolation, lambda: log.list_garbage(B, many))
    assert isinstance(log.list_garbage(B, many[:MAX_LISTED]), Transition)


def test_an_entry_is_collected_after_the_grace_period_without_any_later_leader() -> None:
    """I8: a job that no longer runs can be cleaned; under the leader's rule garbage would wait forever."""
    log = epochs(2)
    log.list_garbage(B, (stray(),))
    entry = log.state.garbage[-1]
    log.now_ms = entry.since_ms + GRACE_MS - 1
    assert entry not in collectable(log.state, log.now_ms, GRACE_MS)
    assert_refused(log, ProtocolViolation, lambda: log.forget_collected(B, (entry.prefix,), GRACE_MS))
    log.now_ms += 1
    assert entry in collectable(log.state, log.now_ms, GRACE_MS)
    assert entry not in deletable(log.state, A, log.now_ms, GRACE_MS)  # type: ignore[arg-type]
    assert isinstance(log.forget_collected(B, (entry.prefix,), GRACE_MS), Transition)
    again = log.forget_collected(B, (entry.prefix,), GRACE_MS)
    assert isinstance(again, AlreadyDone)
    assert again.outcome is Outcome.NOTHING_TO_FORGET


def test_an_epoch_that_was_triggered_before_the_listing_keeps_the_entry_until_it_ends() -> None:
    """I8: it may still look at what it saw when it began, however often it was tried again since."""
    log = epochs(2)
    log.trigger(A)
    log.list_garbage(B, (stray(),))
    entry = log.state.garbage[-1]
    log.rebind(A)
    log.now_ms += 2 * GRACE_MS
    assert entry not in collectable(log.state, log.now_ms, GRACE_MS)
    assert entry in deletable(log.state, A, log.now_ms, GRACE_MS)  # type: ignore[arg-type]
    log.complete(A)
    assert entry in collectable(log.state, log.now_ms, GRACE_MS)
    log.trigger(A)
    assert entry in collectable(log.state, log.now_ms, GRACE_MS), "this epoch began when it was listed already"


def test_objects_near_a_pending_checkpoint_are_never_collected() -> None:
    log = JobLog()
    log.trigger(A)
    log.rebind(A)
    log.abort(A)
    log.resume(A)
    log.now_ms += 2 * GRACE_MS
    aborted = log.state.garbage
    assert set(collectable(log.state, log.now_ms, GRACE_MS)) == set(aborted)
    log.trigger(B)
    assert set(collectable(log.state, log.now_ms, GRACE_MS)) == set(aborted), "they are of an older checkpoint"
