"""Drop checkpoints beyond the retention, and delete what only they needed (I8).

An object is deleted only if it is provably unreachable, in two phases. First a transition lists its key as garbage.
Then, after a grace period longer than any timeout of the job, a later leader deletes it if a fresh read of the head
still lists it. If an outcome is unknown, the object stays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from milepost.epoch import CheckpointMetadata
from milepost.errors import CheckpointError, StateCorrupt
from milepost.jobmaster.figures.update import FiguresUpdate
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.discard import discard
from milepost.jobmaster.retention.garbage_lists import delete_unnamed_lists, fold_garbage, read_list, write_if_large
from milepost.jobmaster.retention.log_compaction import compact_some, record_backlog
from milepost.jobmaster.retention.log_floors import propose_floors
from milepost.jobmaster.retention.tables import orphan_table_records, prefetch_job_tables, pruning_due
from milepost.protocol.manifest.transaction import (
    CheckpointsSubsumed,
    ConfirmSinksRequest,
    GarbageDeletedRequest,
    ListProgress,
    SubsumeRequest,
    Transition,
)
from milepost.protocol.records import (
    CheckpointId,
    CompletedCheckpoint,
    Garbage,
    GarbageList,
    ManifestState,
    SessionId,
    checkpoint_prefix,
    token_of_prefix,
)
from milepost.protocol.retention import (
    RetentionPolicy,
    deletable,
    deletable_lists,
    handle_conflicts,
    is_discarded,
    minimum_grace_ms,
    subsumable,
    timeline_ancestry,
    unreferenced,
)
from milepost.storage import require_own_prefix
from milepost.storage.concurrency import parallel_map, prefetch

_LOG = logging.getLogger(__name__)

MAX_DELETED_KEYS = 256
"""Maximum number of listed keys that one epoch deletes, unless many more are due."""

BACKLOG_EPOCHS = 16
"""An epoch deletes at least 1/16 of the due keys, so the backlog is bounded at any rate of garbage.

With 8,000 keys due an epoch deletes max(256, 8,000 // 16) = 500.
"""

MAX_FAILED_DROPS = 3
"""After this many failed entries the store is assumed down, and the rest waits for the next epoch."""


@dataclass(frozen=True, slots=True)
class SubsumptionPlan:
    """A subsumption that is prepared but not committed.

    Attributes:
        is_pruning_due: whether the tables are pruned after it; decided by what was retained before it.
        compacted: up to this version all entries of the log are tombstones.
        figures: the rows of figures that are missing, among them those of checkpoints that are dropped.
        request: the transition; None if there is none yet, or nothing to subsume.
        is_final: if there is no request, there is nothing to subsume, and it is not planned again.
        subsumed: checkpoints that were subsumed with the confirmation.
    """

    is_pruning_due: bool
    compacted: int
    figures: FiguresUpdate
    request: SubsumeRequest | None
    is_final: bool = False
    subsumed: tuple[CheckpointId, ...] = ()


def plan_during_commits(
    context: JobContext,
    session_id: SessionId,
    state: ManifestState,
    completed: CompletedCheckpoint,
) -> SubsumptionPlan:
    """Plan the subsumption that follows a checkpoint while its sinks still commit.

    There is no request if an older checkpoint is unconfirmed too, or a sink has an orphan table. It is planned after
    the commits then.

    The plan deletes nothing. Its list of garbage is not named before the transition, which checks it against the head
    at that time. Meanwhile the oldest log entries become tombstones: they were compactable at the head before the
    completion as well, and are never needed again.

    Args:
        state: of the completion.
    """
    figures = FiguresUpdate(context, state, session_id, completed.checkpoint_id)
    wait_for_request = prefetch(
        context.store, lambda: _plan_after_confirmation(context, session_id, state, completed), "subsumption"
    )
    return SubsumptionPlan(
        pruning_due(state, context.timeout_ms), compact_some(context, state), figures, wait_for_request()
    )


def _plan_after_confirmation(
    context: JobContext, session_id: SessionId, state: ManifestState, completed: CompletedCheckpoint
) -> SubsumeRequest | None:
    if [checkpoint.checkpoint_id for checkpoint in state.unconfirmed()] != [completed.checkpoint_id]:
        return None
    confirmed = tuple(
        replace(checkpoint, unconfirmed=()) if checkpoint.checkpoint_id == completed.checkpoint_id else checkpoint
        for checkpoint in state.checkpoints
    )
    return _plan(context, session_id, replace(state, checkpoints=confirmed), current_tables_only=True)


def confirm_and_subsume(
    context: JobContext, confirms: ConfirmSinksRequest, plan: SubsumptionPlan | None
) -> SubsumptionPlan | None:
    """Record that sinks have committed and, in the same transition, the subsumption planned concurrently.

    Returns: the plan, with what was subsumed. Raises: the confirmation's error; then nothing was recorded.
    """
    if plan is None or plan.request is None:
        context.record(confirms)
        return plan
    plan.figures.store_before_drop(plan.request.checkpoint_ids)
    try:
        outcome = context.record(replace(plan.request, compacted=plan.compacted, confirms=confirms))
    except CheckpointError as error:  # confirm alone; the subsumption is planned again
        _LOG.info("the subsumption is planned again: %s", error.message)
        context.record(confirms)
        return replace(plan, request=None)
    dropped = isinstance(outcome, Transition) and isinstance(outcome.event, CheckpointsSubsumed)
    return replace(plan, request=None, subsumed=plan.request.checkpoint_ids if dropped else ())


def plan_subsumption(context: JobContext, session_id: SessionId) -> SubsumptionPlan:
    """Plan a subsumption that runs on its own, from the head that this process saw last.

    A stale head is safe: what is compactable at one head is so at every later one, and the transition checks the plan.
    """
    state = context.recent_state()
    figures = FiguresUpdate(context, state, session_id)
    planned = prefetch(context.store, lambda: _plan(context, session_id, state), "subsumption")
    return SubsumptionPlan(
        pruning_due(state, context.timeout_ms), compact_some(context, state), figures, planned(), is_final=True
    )


def subsume_old(context: JobContext, session_id: SessionId, plan: SubsumptionPlan) -> tuple[CheckpointId, ...]:
    """Drop the checkpoints beyond the retention. Returns their ids.

    The same transition records how far the log is compacted (I6).

    Args:
        plan: made before, with the tombstones already written.
    """
    if plan.subsumed:
        return plan.subsumed
    state, request = context.recent_state(), plan.request
    if request is None and not plan.is_final:
        request = _plan(context, session_id, state)
    if request is not None:
        plan.figures.store_before_drop(request.checkpoint_ids)
        outcome = context.record(replace(request, compacted=plan.compacted))
        if isinstance(outcome, Transition):
            return request.checkpoint_ids
    record_backlog(context, session_id, state, plan.compacted)
    return ()


def _plan(
    context: JobContext, session_id: SessionId, state: ManifestState, *, current_tables_only: bool = False
) -> SubsumeRequest | None:
    """Return a request for the checkpoints beyond the retention, with their garbage.

    Returns None if there are none, or if it is unknown what the other checkpoints need.

    Args:
        current_tables_only: return None if a sink has an orphan table.
    """
    # Example: `last: 2` retains 4 and 5 of 3, 4, 5. Checkpoint 3 refers to runs a and b, 4 to b and c, 5 to c. Garbage
    # is run a and the objects below chk-3/ that 4 and 5 do not refer to.
    retained = context.spec.checkpointing.retained
    policy = RetentionPolicy(retained.last, retained.hourly, retained.daily)
    dropped = subsumable(state, policy)
    if not dropped:
        return None
    stay = [item for item in state.checkpoints if item.checkpoint_id not in dropped]
    leave = [item for item in state.checkpoints if item.checkpoint_id in dropped]
    own_objects = prefetch(
        context.store, lambda: parallel_map(context.store, partial(_own_objects, context), leave), "own-objects"
    )
    find_tables = prefetch_job_tables(context)
    needed = _readable_metadata(context, state)
    if any(item.checkpoint_id not in needed for item in stay):
        return None  # which objects it shares with the others is unknown, so all stay
    _check_shared(state.job, needed)
    try:
        tables = find_tables(state)
        if current_tables_only and not all(table.is_current for table in tables):
            return None
        shares = [needed[item.checkpoint_id].tables for item in stay]
        orphan_records = orphan_table_records(context, state, shares, tables)
    except CheckpointError as error:
        _LOG.warning("no checkpoint is dropped now: the contents of an orphan table are unknown: %s", error.message)
        return None
    floors, trimmed = propose_floors(context, state, {item.checkpoint_id: needed[item.checkpoint_id] for item in stay})
    unneeded = unreferenced(
        [orphan_records, *(_referenced(item, needed) for item in stay)],
        [[*_referenced(item, needed), *keys] for item, keys in zip(leave, own_objects(), strict=True)],
    )
    garbage = (*unneeded, *trimmed)
    listed = write_if_large(context.store, state, garbage)
    return SubsumeRequest(session_id, policy, dropped, garbage, listed, floors=floors)


def delete_garbage(context: JobContext, session_id: SessionId, timeout_ms: int) -> int:
    """Delete the head's garbage after its grace period, with the files staged for it at the sinks.

    Of stored lists only a part is deleted per epoch, see `BACKLOG_EPOCHS`. A key that cannot be deleted now stays
    listed; the others are deleted.
    Returns: the number of deleted objects of the job's own store.
    """
    grace_ms = minimum_grace_ms(timeout_ms)
    judged_ms, state, deleted = context.store.clock_ms(), context.recent_state(), 0
    if deletable(state, session_id, judged_ms, grace_ms) or deletable_lists(state, session_id, judged_ms, grace_ms):
        state, deleted = _delete_due(context, session_id, judged_ms, grace_ms)
    fold_garbage(context, session_id, state, grace_ms)
    return deleted


def _delete_due(context: JobContext, session_id: SessionId, judged_ms: int, grace_ms: int) -> tuple[ManifestState, int]:
    """Delete what a fresh head lists, and record it. Returns the head after it, and the number of deleted objects."""
    state = context.head().state
    done, deleted = delete_entries(context, state, deletable(state, session_id, judged_ms, grace_ms))
    due = deletable_lists(state, session_id, judged_ms, grace_ms)
    at_most = max(MAX_DELETED_KEYS, sum(named.count - named.done for named in due) // BACKLOG_EPOCHS)
    lists, more = delete_listed(context, state, due, at_most)
    if done or lists:
        request = GarbageDeletedRequest(session_id, done, grace_ms, lists)
        # The objects are deleted, so the record must not be refused because the clock went back since.
        result = context.transact(request, at_least_ms=judged_ms)
        delete_unnamed_lists(context, state, result.state)
        state = result.state
    return state, deleted + more


def delete_entries(
    context: JobContext, state: ManifestState, entries: Iterable[Garbage]
) -> tuple[tuple[str, ...], int]:
    """Delete the objects of garbage entries. A failed entry is logged and stays; too many failures stop the deletion.

    Args:
        state: the head that still lists them. entries: that may be deleted now.
    Returns: the entries that are completely deleted, and the number of deleted objects of the job's own store.
    """
    failed: list[str] = []

    def delete(prefix: str) -> int | None:
        if len(failed) >= MAX_FAILED_DROPS:
            return None
        try:
            return _delete_entry(context, state, prefix)
        except CheckpointError as error:
            failed.append(prefix)
            _LOG.warning("garbage %s stays listed: %s", prefix, error.message)
            return None

    prefixes = [require_own_prefix(entry.prefix) for entry in entries]
    counts = zip(prefixes, parallel_map(context.store, delete, prefixes), strict=True)
    deleted = {prefix: count for prefix, count in counts if count is not None}
    return tuple(deleted), sum(deleted.values())


def delete_listed(
    context: JobContext, state: ManifestState, lists: Iterable[GarbageList], at_most: int = MAX_DELETED_KEYS
) -> tuple[tuple[ListProgress, ...], int]:
    """Delete up to `at_most` keys of stored lists, resuming each list. Returns the progress and the deleted objects."""
    progress: list[ListProgress] = []
    deleted = 0
    for named in lists:
        keys = read_list(context.store, named)
        due = keys[named.done : named.done + at_most]
        entries = [Garbage(key, named.since_version, named.since_ms) for key in due]
        deleted_keys, count = delete_entries(context, state, entries)
        deleted += count
        at_most -= len(due)
        failed = tuple(key for key in due if key not in deleted_keys)
        progress.append(ListProgress(named.sha256, named.done + len(due) if keys else named.count, failed))
        if failed or not at_most:
            break
    return tuple(progress), deleted


def _delete_entry(context: JobContext, state: ManifestState, prefix: str) -> int | None:
    """Delete one entry and return the number of its objects; None if a sink did not answer, so that it stays listed."""
    owner = token_of_prefix(prefix)
    if owner is not None and is_discarded(state, *owner) and not discard(context, *owner):
        return None
    listed = [stat.key for stat in context.store.list(prefix)]
    keys = listed if prefix.endswith("/") else [key for key in listed if key == prefix]
    context.store.delete(keys)
    return len(keys)


def _check_shared(job: str, needed: Mapping[CheckpointId, CheckpointMetadata]) -> None:
    """Raise StateCorrupt if two checkpoints describe one key differently: reachability is unknown then."""
    conflicts = handle_conflicts(
        (f"checkpoint {checkpoint_id}", handle)
        for checkpoint_id, metadata in needed.items()
        for handle in metadata.handles()
    )
    if conflicts:
        raise StateCorrupt(
            f"job {job}: nothing was subsumed: two checkpoints describe one object differently: {conflicts[0]}.",
            hint=f"milepost verify {job} lists all damage",
            problems=list(conflicts),
        )


def _readable_metadata(context: JobContext, state: ManifestState) -> dict[CheckpointId, CheckpointMetadata]:
    """Return the metadata of the retained checkpoints.

    A corrupt checkpoint that a rollback abandoned must not stop the job, so it is left out and logged.
    Raises: StateCorrupt: a checkpoint of the live timeline or its ancestors cannot be read.
    """
    live = timeline_ancestry(state, state.timeline())

    def read(checkpoint: CompletedCheckpoint) -> CheckpointMetadata | None:
        try:
            return context.metadata(checkpoint)
        except StateCorrupt as error:
            if checkpoint in live:
                raise
            _LOG.warning("checkpoint %s of %s: %s", checkpoint.checkpoint_id, checkpoint.timeline, error.message)
            return None

    pairs = zip(state.checkpoints, parallel_map(context.store, read, state.checkpoints), strict=True)
    return {checkpoint.checkpoint_id: metadata for checkpoint, metadata in pairs if metadata is not None}


def _referenced(checkpoint: CompletedCheckpoint, needed: Mapping[CheckpointId, CheckpointMetadata]) -> list[str]:
    metadata = needed.get(checkpoint.checkpoint_id)
    return [checkpoint.metadata.key, *(metadata.references() if metadata is not None else ())]


def _own_objects(context: JobContext, checkpoint: CompletedCheckpoint) -> list[str]:
    return [stat.key for stat in context.store.list(checkpoint_prefix(checkpoint.checkpoint_id))]
