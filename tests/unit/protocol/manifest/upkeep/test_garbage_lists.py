"""Garbage in separate lists: the state stays small, and I8's two phases hold as for single entries."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import CommitConflict, ProtocolViolation, StateCorrupt
from milepost.protocol.log.garbage_lists import decode_list, encode_list
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Outcome, Transition
from milepost.protocol.manifest.transaction.events import GarbageDeleted, GarbageFolded, GarbageListed
from milepost.protocol.manifest.transaction.requests import FoldGarbageRequest, FoldPlan, ListProgress
from milepost.protocol.manifest.upkeep.garbage import (
    MAX_FOLDED_KEYS,
    MAX_LISTS,
    MAX_STATE_ENTRIES,
    PERIODS_PER_GRACE,
    newest_checkpoint_of,
    plan_fold,
)
from milepost.protocol.records.ids import CheckpointId, SessionId
from milepost.protocol.records.layout import token_prefix
from milepost.protocol.records.manifest_state import Garbage, GarbageList, ManifestState
from milepost.protocol.retention.retention import collectable_lists, deletable_lists
from milepost_testkit import wording
from milepost_testkit.jobs.job_log import A, B, JobLog

GRACE_MS = 60_000
LISTED = "1" * 64


def stray(number: int, checkpoint: int = 1) -> str:
    return f"{token_prefix(CheckpointId(checkpoint), 2)}run-{number}.parquet"  # type: ignore[arg-type]


def with_list(count: int = 4) -> tuple[JobLog, tuple[str, ...]]:
    """A job of three epochs whose first checkpoint left this many keys in one list."""
    log = JobLog()
    for _ in range(3):
        log.epoch(A)
    keys = tuple(stray(number) for number in range(count))
    log.subsume(A, (1,), keys, last=2, list_sha256=LISTED)
    return log, keys


def test_a_subsumption_names_a_list_and_no_key() -> None:
    log, keys = with_list()
    (named,) = log.state.garbage_lists
    assert named == GarbageList(LISTED, len(keys), 0, CheckpointId(1), log.state.version, log.now_ms)
    event = log.events[-1]
    assert (event.garbage, event.garbage_list) == ((), named)  # type: ignore[union-attr]
    assert not {entry.prefix for entry in log.state.garbage} & set(keys)


def test_a_savepoints_root_stays_an_entry_of_the_state() -> None:
    """Whether a root is listed decides what may be recorded there, and only the state is read for that."""
    log = JobLog()
    log.epoch(A)
    log.epoch(A)
    root = f"savepoints/before/{'a' * 32}/"
    log.list_garbage(A, (root, stray(1)), list_sha256=LISTED)
    assert isinstance(log.events[-1], GarbageListed)
    assert (log.events[-1].garbage, log.state.garbage[-1].prefix) == ((root,), root)
    assert log.state.garbage_lists[0].count == 1
    with wording.raises(ProtocolViolation):
        log.list_garbage(A, (f"savepoints/after/{'a' * 32}/",), list_sha256="2" * 64)


def test_only_a_later_leader_deletes_listed_keys_and_only_after_the_grace_period() -> None:
    log, keys = with_list()
    session = SessionId(A)

    def due() -> tuple[GarbageList, ...]:
        return deletable_lists(log.state, session, log.now_ms, GRACE_MS)

    early = (ListProgress(LISTED, 1),)
    log.now_ms += GRACE_MS
    assert due() == (), "the leader that listed it"
    with wording.raises(ProtocolViolation):
        log.forget(A, (), GRACE_MS, early)
    log.epoch(A)
    log.now_ms -= 2
    assert due() == (), "the grace is not over"
    log.now_ms += 2
    assert due() == log.state.garbage_lists
    assert deletable_lists(log.state, SessionId(B), log.now_ms, GRACE_MS) == ()
    log.forget(A, (), GRACE_MS, (ListProgress(LISTED, 3, (keys[1],)),))
    assert log.events[-1] == GarbageDeleted(log.now_ms, (), session, ((LISTED, 3),))
    (left,) = log.state.garbage_lists
    assert left.done == 3
    assert log.state.garbage[-1] == Garbage(keys[1], left.since_version, left.since_ms), "what failed stays listed"
    again = log.forget(A, (), GRACE_MS, (ListProgress(LISTED, 2), ListProgress("9" * 64, 1)))
    assert isinstance(again, AlreadyDone), "somebody got further, or the list is gone"
    with wording.raises(ProtocolViolation):
        log.forget(A, (), GRACE_MS, (ListProgress(LISTED, 5),))
    log.forget(A, (), GRACE_MS, (ListProgress(LISTED, 4, (keys[1],)),))
    assert log.state.garbage_lists == ()
    assert [entry.prefix for entry in log.state.garbage].count(keys[1]) == 1


def test_a_list_waits_for_every_checkpoint_that_was_pending_when_it_was_named() -> None:
    """Whoever leads nothing may delete only when all that could have looked at it is over."""
    log, _ = with_list()
    log.now_ms += GRACE_MS
    assert collectable_lists(log.state, log.now_ms, GRACE_MS) == log.state.garbage_lists
    log.trigger(A)
    assert collectable_lists(log.state, log.now_ms, GRACE_MS) == log.state.garbage_lists
    (named,) = log.state.garbage_lists
    younger = replace(named, since_version=log.state.version)
    assert collectable_lists(replace(log.state, garbage_lists=(younger,)), log.now_ms, GRACE_MS) == ()
    newer = replace(named, newest=log.pending.checkpoint_id)
    assert collectable_lists(replace(log.state, garbage_lists=(newer,)), log.now_ms, GRACE_MS) == ()
    answer = log.forget_collected(B, (), GRACE_MS, (ListProgress(LISTED, 4),))
    assert isinstance(answer, Transition)
    assert log.state.garbage_lists == ()


def test_a_fold_changes_neither_the_garbage_nor_its_grace_period() -> None:
    log, keys = with_list()
    log.now_ms += 1_000
    log.list_garbage(B, (stray(9),), list_sha256="2" * 64)
    (_, younger), entries = log.state.garbage_lists, log.state.garbage
    log.now_ms += 1_000
    log.fold(B, len(entries), (*keys, stray(9)))
    (folded,) = log.state.garbage_lists
    assert isinstance(log.events[-1], GarbageFolded)
    assert log.events[-1].lists == (LISTED, "2" * 64)
    assert (folded.count, folded.done, log.state.garbage) == (len(keys) + 1 + len(entries), 0, ())
    assert (folded.since_version, folded.since_ms) == (younger.since_version, younger.since_ms)
    again = log.fold(B, 0, (*keys, stray(9)))
    assert isinstance(again, AlreadyDone)
    assert again.outcome is Outcome.NOTHING_TO_FOLD


def test_a_fold_of_changed_entries_is_refused() -> None:
    log, keys = with_list()
    before = log.state
    log.now_ms += GRACE_MS
    log.epoch(A)
    log.forget(A, (), GRACE_MS, (ListProgress(LISTED, 1),))
    head, log.state = log.state, before
    plan_of_old = log.state.garbage_lists
    log.state = replace(head, garbage_lists=tuple(replace(one, since_ms=0) for one in plan_of_old))
    with wording.raises(CommitConflict):
        _fold(log, before, keys)
    log.state = replace(head, garbage=())
    with wording.raises(CommitConflict):
        log.submit(_request(before, keys))


def _request(state: ManifestState, keys: tuple[str, ...]) -> FoldGarbageRequest:
    plan = FoldPlan(state.garbage, state.garbage_lists)
    every = (*(entry.prefix for entry in plan.garbage), *keys)
    return FoldGarbageRequest(SessionId(B), plan, every, "f" * 64)


def _fold(log: JobLog, state: ManifestState, keys: tuple[str, ...]) -> None:
    log.submit(_request(state, keys))


def test_a_fold_that_forgets_an_entry_or_invents_a_key_is_refused() -> None:
    log, keys = with_list()
    with wording.raises(ProtocolViolation):
        log.fold(B, 0, (*keys, stray(7)))
    request = _request(log.state, keys)
    with wording.raises(ProtocolViolation):
        log.submit(replace(request, keys=keys))


def lists_of(*ages_and_counts: tuple[int, int], state: ManifestState) -> ManifestState:
    lists = tuple(
        GarbageList(f"{index:064x}", count, 0, CheckpointId(1), 1, age)
        for index, (age, count) in enumerate(ages_and_counts)
    )
    return replace(state, garbage_lists=lists)


def test_small_states_are_not_folded() -> None:
    log = JobLog()
    assert plan_fold(log.state, GRACE_MS) is None
    log.epoch(A)
    assert plan_fold(log.state, GRACE_MS) is None
    many = tuple((1_000, 10) for _ in range(MAX_LISTS))
    assert plan_fold(lists_of(*many, state=log.state), GRACE_MS) is None


def test_entries_are_folded_when_there_are_many_but_never_a_savepoints_root() -> None:
    log = JobLog()
    root = Garbage(f"savepoints/before/{'a' * 32}/", 1, 1)
    entries = tuple(Garbage(stray(number), 1, 1) for number in range(MAX_STATE_ENTRIES + 1))
    plan = plan_fold(replace(log.state, garbage=(root, *entries)), GRACE_MS)
    assert plan is not None
    assert (plan.garbage, plan.lists) == (entries, ())


def test_many_lists_of_the_newest_stretch_are_folded_but_for_begun_and_full_ones() -> None:
    """A key waits at most a quarter of the grace longer than it had to."""
    log = JobLog()
    stretch = GRACE_MS // PERIODS_PER_GRACE
    young = tuple((5 * stretch + index, 10) for index in range(MAX_LISTS + 1))
    state = lists_of((stretch, 10), *young, state=log.state)
    plan = plan_fold(state, GRACE_MS)
    assert plan is not None
    assert plan.lists == state.garbage_lists[1:]
    begun = replace(state.garbage_lists[1], done=1)
    assert plan_fold(replace(state, garbage_lists=(begun, *state.garbage_lists[2:])), GRACE_MS) is None
    full = tuple(replace(one, count=MAX_FOLDED_KEYS) for one in state.garbage_lists)
    assert plan_fold(replace(state, garbage_lists=full), GRACE_MS) is None


def test_of_many_lists_two_of_an_older_stretch_are_folded_first() -> None:
    log = JobLog()
    stretch = GRACE_MS // PERIODS_PER_GRACE
    young = tuple((5 * stretch + index, 10) for index in range(MAX_LISTS - 1))
    state = lists_of((stretch, 10), (stretch + 1, 10), *young, state=log.state)
    plan = plan_fold(state, GRACE_MS)
    assert plan is not None
    assert plan.lists == state.garbage_lists[:2]
    few = replace(state, garbage_lists=state.garbage_lists[:3])
    assert plan_fold(few, GRACE_MS) is None, "few lists are left alone"


@given(st.lists(st.integers(0, 40), min_size=1, max_size=400), st.integers(1, 200))
def test_whatever_the_pace_the_state_names_few_lists(steps: list[int], keys: int) -> None:
    """I2: each epoch names a list; the grace takes the oldest off, the fold joins the youngest."""
    state = JobLog().state
    now_ms = 0
    for index, step in enumerate(steps):
        now_ms += step * 100
        one = GarbageList(f"{index:064x}", keys, 0, CheckpointId(1), index + 1, now_ms)
        left = tuple(kept for kept in state.garbage_lists if now_ms - kept.since_ms < GRACE_MS)
        state = replace(state, garbage_lists=(*left, one))
        plan = plan_fold(state, GRACE_MS)
        if plan is not None:
            rest = tuple(kept for kept in state.garbage_lists if kept not in plan.lists)
            total = sum(kept.count for kept in plan.lists)
            state = replace(state, garbage_lists=(*rest, replace(one, sha256=f"f{index:063x}", count=total)))
        full = sum(kept.count for kept in state.garbage_lists) // (MAX_FOLDED_KEYS - MAX_LISTS * keys) + 1
        assert len(state.garbage_lists) <= PERIODS_PER_GRACE + 1 + MAX_LISTS + 2 * full


def test_only_the_list_that_was_written_is_read() -> None:
    keys = (stray(1), stray(2, checkpoint=3))
    digest, body = encode_list(keys, 7)
    named = GarbageList(digest, 2, 0, CheckpointId(3), 8, 1)
    assert decode_list(body, named) == keys
    assert encode_list(keys, 8)[0] != digest, "no two transitions ever name one object"
    for other, wrong in ((body + b" ", named), (body, replace(named, count=3)), (body, replace(named, newest=4))):
        with wording.raises(StateCorrupt):
            decode_list(other, wrong)  # type: ignore[arg-type]


def test_no_key_outside_of_the_checkpoints_is_listed() -> None:
    assert newest_checkpoint_of([stray(1), stray(1, checkpoint=9)]) == 9
    assert newest_checkpoint_of([]) is None
    assert newest_checkpoint_of([stray(1), "inputs/a.json"]) is None
    assert newest_checkpoint_of([stray(1) + "/../x"]) is None
