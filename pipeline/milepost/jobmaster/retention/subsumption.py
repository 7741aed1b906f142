"""Subsumption and deletion: only what is provably unreachable goes, and only after the manifest said so (I8).

Two phases: a transition lists keys as garbage; a later leader deletes what its own fresh head still lists, after a
grace period longer than any timeout of the job. An unknown outcome keeps the object.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import CheckpointError, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.discard import discard
from milepost.jobmaster.retention.garbage_lists import fold, forget_lists, read_list, write_if_large
from milepost.jobmaster.retention.job_tables import find_job_tables
from milepost.jobmaster.retention.left_tables import records_of_left_tables
from milepost.jobmaster.retention.log_compaction import compact_some, record_backlog
from milepost.jobmaster.retention.table_pruning import is_look_due
from milepost.protocol.manifest.transaction.answers import Transition
from milepost.protocol.manifest.transaction.events import CheckpointsSubsumed
from milepost.protocol.manifest.transaction.requests import (
    ConfirmSinksRequest,
    GarbageDeletedRequest,
    ListProgress,
    SubsumeRequest,
)
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.ids import CheckpointId, SessionId
from milepost.protocol.records.layout import checkpoint_prefix, token_of_prefix
from milepost.protocol.records.manifest_state import Garbage, GarbageList, ManifestState
from milepost.protocol.retention.ancestry import timeline_ancestry
from milepost.protocol.retention.retention import (
    RetentionPolicy,
    deletable,
    deletable_lists,
    handle_conflicts,
    is_discarded,
    minimum_grace_ms,
    subsumable,
    unreferenced,
)
from milepost.storage.concurrency.background import prefetch
from milepost.storage.concurrency.parallel_map import parallel_map
from milepost.storage.layout import require_own_prefix

_LOG = logging.getLogger(__name__)

MAX_DELETED_KEYS = 256
"""At most so many keys of lists are deleted by one epoch, unless many more are due."""

BACKLOG_EPOCHS = 16
"""Of those that are due an epoch deletes such a part: what waits is bounded, however much each of them leaves."""

MAX_FAILED_DROPS = 3
"""After so many entries that could not be deleted the store is taken for down: the rest waits for the next time."""


@dataclass(frozen=True, slots=True)
class SubsumptionPlan:
    """What a subsumption reads and writes before its transition.

    Attributes:
        look_due: whether the tables are looked at afterwards, which is judged by what was retained before.
        compacted: up to this version all entries of the log are tombstones. request: None: planned when it is time.
        is_whole: where there is no request, nothing is to be subsumed: it is not planned again.
        subsumed: what has been subsumed with it already.
    """

    look_due: bool
    compacted: int
    request: SubsumeRequest | None
    is_whole: bool = False
    subsumed: tuple[CheckpointId, ...] = ()


def plan_beside_commits(
    context: JobContext,
    session_id: SessionId,
    state: ManifestState,
    completed: CompletedCheckpoint,
) -> SubsumptionPlan:
    """Plan the subsumption that follows once the sinks of a checkpoint have confirmed, beside their commits.

    Not where an older checkpoint waits for a sink too, or a table is not in force, whose turn comes after.

    It takes nothing away: its list of garbage is named by nothing before the transition, which checks it against the
    head of then. The log's oldest entries become tombstones meanwhile: a completion makes none of them compactable that
    was not so at the head before it, which was read, and none is needed again later.

    Args:
        state: of the completion.
    """
    planned = prefetch(context.store, lambda: _early(context, session_id, state, completed), "subsumption")
    return SubsumptionPlan(is_look_due(state, context.timeout_ms), compact_some(context, state), planned())


def _early(
    context: JobContext, session_id: SessionId, state: ManifestState, completed: CompletedCheckpoint
) -> SubsumeRequest | None:
    if [one.checkpoint_id for one in state.unconfirmed()] != [completed.checkpoint_id]:
        return None
    confirmed = tuple(
        replace(one, unconfirmed=()) if one.checkpoint_id == completed.checkpoint_id else one
        for one in state.checkpoints
    )
    return _plan(context, session_id, replace(state, checkpoints=confirmed), in_force_only=True)


def confirm_and_subsume(
    context: JobContext, confirms: ConfirmSinksRequest, plan: SubsumptionPlan | None
) -> SubsumptionPlan | None:
    """Record that sinks have committed, and in the same transition the subsumption that was planned beside them.

    Returns: what is done of it. Raises: the confirmation's error: then nothing was recorded.
    """
    if plan is None or plan.request is None:
        context.record(confirms)
        return plan
    try:
        made = context.record(replace(plan.request, compacted=plan.compacted, confirms=confirms))
    except CheckpointError as error:  # planned anew; that the sinks have committed does not wait for it
        _LOG.info("what is subsumed is decided again: %s", error.message)
        context.record(confirms)
        return replace(plan, request=None)
    dropped = isinstance(made, Transition) and isinstance(made.event, CheckpointsSubsumed)
    return replace(plan, request=None, subsumed=plan.request.checkpoint_ids if dropped else ())


def plan_subsumption(context: JobContext, session_id: SessionId) -> SubsumptionPlan:
    """Return what `plan_beside_commits` does, as of the head that was seen last: for who subsumes by itself.

    What is compactable at any head is so at every later one, and the transition checks the plan.
    """
    state = context.recent_state()
    planned = prefetch(context.store, lambda: _plan(context, session_id, state), "subsumption")
    return SubsumptionPlan(
        is_look_due(state, context.timeout_ms), compact_some(context, state), planned(), is_whole=True
    )


def subsume_old(context: JobContext, session_id: SessionId, plan: SubsumptionPlan) -> tuple[CheckpointId, ...]:
    """Drop the checkpoints that the retention no longer keeps. Returns their ids.

    Entries of the log that are older than everything retained become tombstones before, some at once, and the same
    transition records how far that is (I6).

    Args:
        plan: what was done for it before.
    """
    if plan.subsumed:
        return plan.subsumed
    state, request = context.recent_state(), plan.request
    if request is None and not plan.is_whole:
        request = _plan(context, session_id, state)
    if request is not None:
        made = context.record(replace(request, compacted=plan.compacted))
        if isinstance(made, Transition):
            return request.checkpoint_ids
    record_backlog(context, session_id, state, plan.compacted)
    return ()


def _plan(
    context: JobContext, session_id: SessionId, state: ManifestState, *, in_force_only: bool = False
) -> SubsumeRequest | None:
    """Return what the retention no longer keeps, with its garbage listed; None: nothing, or it cannot be known.

    Args:
        in_force_only: nothing is planned where a sink has a table that is not in force.
    """
    retained = context.spec.checkpointing.retained
    policy = RetentionPolicy(retained.last, retained.hourly, retained.daily)
    dropped = subsumable(state, policy)
    if not dropped:
        return None
    kept = [item for item in state.checkpoints if item.checkpoint_id not in dropped]
    gone = [item for item in state.checkpoints if item.checkpoint_id in dropped]
    own = prefetch(
        context.store, lambda: parallel_map(context.store, partial(_own_objects, context), gone), "own-objects"
    )
    find_tables = find_job_tables(context)
    needed = _readable(context, state)
    if any(item.checkpoint_id not in needed for item in kept):
        return None  # what it shares with the others is unknown, so all of it stays
    _check_shared(state.job, needed)
    try:
        tables = find_tables(state)
        if in_force_only and not all(table.in_force for table in tables):
            return None
        shares = [needed[item.checkpoint_id].tables for item in kept]
        carried = records_of_left_tables(context, state, shares, tables)
    except CheckpointError as error:
        _LOG.warning("no checkpoint is dropped now: what a table carries that was left is unknown: %s", error.message)
        return None
    garbage = unreferenced(
        [carried, *(_referenced(item, needed) for item in kept)],
        [[*_referenced(item, needed), *keys] for item, keys in zip(gone, own(), strict=True)],
    )
    return SubsumeRequest(session_id, policy, dropped, garbage, write_if_large(context.store, state, garbage))


def delete_garbage(context: JobContext, session_id: SessionId, timeout_ms: int) -> int:
    """Delete what the head lists as garbage and whose grace is over, with what was staged for it at the sinks.

    Of lists so many keys at once that the work keeps up with any pace, and is never long. What cannot be deleted now
    stays listed, and does not keep the others from going.
    Returns: the number of deleted objects of the job's own store.
    """
    grace_ms = minimum_grace_ms(timeout_ms)
    judged_ms, state, deleted = context.store.clock_ms(), context.recent_state(), 0
    if deletable(state, session_id, judged_ms, grace_ms) or deletable_lists(state, session_id, judged_ms, grace_ms):
        state, deleted = _delete_due(context, session_id, judged_ms, grace_ms)
    fold(context, session_id, state, grace_ms)
    return deleted


def _delete_due(context: JobContext, session_id: SessionId, judged_ms: int, grace_ms: int) -> tuple[ManifestState, int]:
    """Delete what the head of now lists, and say so. Returns the head after it, and how many objects went."""
    state = context.head().state
    done, deleted = delete_entries(context, state, deletable(state, session_id, judged_ms, grace_ms))
    due = deletable_lists(state, session_id, judged_ms, grace_ms)
    at_most = max(MAX_DELETED_KEYS, sum(one.count - one.done for one in due) // BACKLOG_EPOCHS)
    lists, more = delete_listed(context, state, due, at_most)
    if done or lists:
        request = GarbageDeletedRequest(session_id, done, grace_ms, lists)
        # What is deleted is deleted: a clock that has gone back since must not refuse to say so.
        result = context.transact(request, at_least_ms=judged_ms)
        forget_lists(context, state, result.state)
        state = result.state
    return state, deleted + more


def delete_entries(
    context: JobContext, state: ManifestState, entries: Iterable[Garbage]
) -> tuple[tuple[str, ...], int]:
    """Delete what garbage entries stand for; one that fails is logged and left, and too many failures end it for now.

    Args:
        state: the head that still lists them. entries: what may be deleted now.
    Returns: the entries of which nothing is left, and how many objects of the job's own store went.
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
    gone = {prefix: count for prefix, count in counts if count is not None}
    return tuple(gone), sum(gone.values())


def delete_listed(
    context: JobContext, state: ManifestState, lists: Iterable[GarbageList], at_most: int = MAX_DELETED_KEYS
) -> tuple[tuple[ListProgress, ...], int]:
    """Delete what lists name, from where each was left. Returns how far each got, and how many objects went."""
    progress: list[ListProgress] = []
    deleted = 0
    for one in lists:
        keys = read_list(context.store, one)
        wanted = keys[one.done : one.done + at_most]
        entries = [Garbage(key, one.since_version, one.since_ms) for key in wanted]
        gone, count = delete_entries(context, state, entries)
        deleted += count
        at_most -= len(wanted)
        failed = tuple(key for key in wanted if key not in gone)
        progress.append(ListProgress(one.sha256, one.done + len(wanted) if keys else one.count, failed))
        if failed or not at_most:
            break
    return tuple(progress), deleted


def _delete_entry(context: JobContext, state: ManifestState, prefix: str) -> int | None:
    """Delete one entry; None when a sink did not answer, so that it stays listed."""
    owner = token_of_prefix(prefix)
    if owner is not None and is_discarded(state, *owner) and not discard(context, *owner):
        return None
    found = [stat.key for stat in context.store.list(prefix)]
    keys = found if prefix.endswith("/") else [key for key in found if key == prefix]
    context.store.delete(keys)
    return len(keys)


def _check_shared(job: str, needed: Mapping[CheckpointId, CheckpointMetadata]) -> None:
    """Refuse to judge reachability by a key of which two checkpoints say different things. Raises StateCorrupt."""
    conflicts = handle_conflicts(
        (f"checkpoint {checkpoint_id}", handle)
        for checkpoint_id, metadata in needed.items()
        for handle in metadata.handles()
    )
    if conflicts:
        raise StateCorrupt(
            f"job {job}: nothing was subsumed: two checkpoints describe one object differently: {conflicts[0]}.",
            hint=f"milepost verify {job} lists all that is broken",
            problems=list(conflicts),
        )


def _readable(context: JobContext, state: ManifestState) -> dict[CheckpointId, CheckpointMetadata]:
    """Return the metadata of the retained checkpoints.

    One that a rollback has left because it is corrupt must not stop the job: it is left out, and logged.
    Raises: StateCorrupt: one of the live lineage cannot be read.
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

    found = zip(state.checkpoints, parallel_map(context.store, read, state.checkpoints), strict=True)
    return {checkpoint.checkpoint_id: metadata for checkpoint, metadata in found if metadata is not None}


def _referenced(checkpoint: CompletedCheckpoint, needed: Mapping[CheckpointId, CheckpointMetadata]) -> list[str]:
    metadata = needed.get(checkpoint.checkpoint_id)
    return [checkpoint.metadata.key, *(metadata.references() if metadata is not None else ())]


def _own_objects(context: JobContext, checkpoint: CompletedCheckpoint) -> list[str]:
    return [stat.key for stat in context.store.list(checkpoint_prefix(checkpoint.checkpoint_id))]
