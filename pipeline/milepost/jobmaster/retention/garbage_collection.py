"""Collect garbage on demand: the plan and the work of `milepost gc` (I8).

A collection has two phases. Both are safe alongside a running epoch and at any crash.
1. Objects that a complete walk of every root did not reach are listed as garbage. The transition lands only if the head
   is still the version that was walked.
2. Entries that have been listed for the whole grace period are deleted, each after a fresh read of the head.
A collection takes no leadership and fences no session. At the sinks it deletes the staged files of aborted or fenced
tokens by its own `abort`, and prunes published files in two phases of their own (`table_pruning.py`). Objects
that no record can refer to are deleted in one phase after the grace period: files of probes, replaced lists, and the
rows of a landing that lost a race. Expired vetoes are deleted immediately.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from milepost.errors import CommitConflict, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.discard import discard
from milepost.jobmaster.retention.fsck import ClassifiedObject, StoredObject, classify_objects, describe
from milepost.jobmaster.retention.garbage_lists import (
    delete_unnamed_lists,
    fold_garbage,
    listed_garbage,
    write_if_large,
)
from milepost.jobmaster.retention.landed_logs import LandedLogs
from milepost.jobmaster.retention.log_compaction import compact_all
from milepost.jobmaster.retention.reachability import JobReach, TableReach, walk_job
from milepost.jobmaster.retention.subsumption import MAX_FAILED_DROPS, delete_entries, delete_listed
from milepost.jobmaster.retention.tables import PrunePlan, TablePruning, execute, plan_pruning
from milepost.protocol.manifest.transaction import ForgetCollectedRequest, ListGarbageRequest, ListProgress
from milepost.protocol.manifest.upkeep import MAX_LISTED, horizon, listable
from milepost.protocol.records import CheckpointId, FencingToken, Garbage, GarbageList, SessionId
from milepost.protocol.retention import ObjectStatus, collectable, collectable_lists, minimum_grace_ms, unreferenced

_LOG = logging.getLogger(__name__)

_WALKS = 5
_MAX_ROOTS = 4
"""Maximum number of savepoint roots to list in one transition, since the manifest value holds them as entries."""


@dataclass(frozen=True, slots=True)
class _CollectionPlan:
    """The deletions that one walk permits.

    Attributes:
        unreachable: objects of the job's own store that nothing reaches. entries: the prefixes to list for them.
        staged: (checkpoint, token) with staged files that may be deleted now: dead for the whole grace period.
        tables: per table, the published files to list or delete.
        probes: files of killed start-up probes, older than the grace. Nothing refers to them, so one phase is enough.
        vetoes: expired failing rows of vetoed epochs. One phase is enough, too.
        landings: objects of landings that lost a race, older than the grace. No record can name them: one phase, too.
        due: garbage entries that may be deleted now. due_listed: keys in stored lists that may be deleted now.
    """

    unreachable: tuple[ClassifiedObject, ...]
    entries: tuple[str, ...]
    staged: tuple[tuple[CheckpointId, FencingToken], ...]
    tables: tuple[PrunePlan, ...]
    probes: tuple[str, ...]
    vetoes: tuple[str, ...]
    landings: tuple[str, ...]
    due: tuple[Garbage, ...]
    due_listed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Collection:
    """Report of a collection, or of its dry run.

    Attributes:
        listed: entries that it adds. due: garbage that may be deleted now. waiting: number of entries within the grace.
        probes, vetoes, landings, staged: deleted without listing; see `_CollectionPlan`.
        compactable_entries: of the manifest log.
    """

    job: str
    manifest_version: int
    grace_ms: int
    dry_run: bool
    unreachable: tuple[StoredObject, ...]
    listed: tuple[str, ...]
    due: tuple[str, ...]
    waiting: int
    probes: tuple[str, ...]
    vetoes: tuple[str, ...]
    landings: tuple[str, ...]
    compactable_entries: int
    tables: tuple[TablePruning, ...]
    staged: tuple[str, ...]
    deleted_objects: int = 0
    pruned_files: int = 0


def collect_garbage(
    context: JobContext, session_id: SessionId, timeout_ms: int, *, dry_run: bool = False
) -> Collection:
    """List provably unreachable objects, and delete those that have been listed for the grace period.

    Args:
        session_id: for the history; it does not become the leader.
        timeout_ms: `checkpointing.timeout` of the job. The grace period is longer than any of its timeouts.
        dry_run: change nothing, only return the plan.
    Raises:
        StateCorrupt: a root cannot be walked, so nothing is provably unreachable; nothing was changed.
        CommitConflict: the head moved during each of several walks; nothing was deleted.
    """
    grace_ms, logs = minimum_grace_ms(timeout_ms), LandedLogs(context.store)
    for _ in range(_WALKS):
        reach = _walk(context, logs)
        plan = _plan(context, reach, timeout_ms)
        report = _report(reach, plan, grace_ms, dry_run)
        if dry_run:
            return report
        try:
            _list_garbage(context, session_id, reach, plan.entries)
        except CommitConflict:
            continue
        deleted = _delete(context, session_id, plan, grace_ms)
        compact_all(context, session_id)
        pruned = sum(execute(table.opened.sink, prune) for table, prune in zip(reach.tables, plan.tables, strict=True))
        return replace(report, deleted_objects=deleted, pruned_files=pruned)
    raise CommitConflict(
        f"job {context.spec.name}: the head moved during each of {_WALKS} walks. Nothing was listed or deleted.",
        hint="run it again when fewer sessions work on the job",
    )


def _walk(context: JobContext, logs: LandedLogs) -> JobReach:
    reach = walk_job(context, logs)
    if not reach.complete:
        problems = [*reach.faults, *reach.conflicts]
        raise StateCorrupt(
            f"job {reach.state.job}: a root cannot be walked, so nothing is provably unreachable. Nothing was"
            f" changed.\n{problems[0]}",
            hint=f"milepost fsck {reach.state.job} lists all damage",
            problems=problems,
        )
    return reach


def _plan(context: JobContext, reach: JobReach, timeout_ms: int) -> _CollectionPlan:
    grace_ms = minimum_grace_ms(timeout_ms)
    classified = list(classify_objects(reach))
    own = [item for item in classified if item.sink is None]
    unreachable = tuple(item for item in own if item.status is ObjectStatus.UNREACHABLE)
    reachable = [item.stat.key for item in own if item.status is not ObjectStatus.UNREACHABLE]
    old = [item for item in own if reach.now_ms - item.stat.last_modified_ms >= grace_ms]
    entries = unreferenced([reachable, reach.references], [[item.stat.key for item in unreachable]])
    return _CollectionPlan(
        unreachable,
        (*listable(entries)[:MAX_LISTED], *sorted(set(entries) - set(listable(entries)))[:_MAX_ROOTS]),
        _dead_staging(classified, reach.now_ms, grace_ms),
        tuple(_prune_plan(reach, table, classified, timeout_ms) for table in reach.tables),
        tuple(item.stat.key for item in old if item.status in (ObjectStatus.PROBE, ObjectStatus.REPLACED_LIST)),
        tuple(item.stat.key for item in own if item.status is ObjectStatus.EXPIRED),
        tuple(item.stat.key for item in old if item.status is ObjectStatus.LOST_LANDING),
        collectable(reach.state, reach.now_ms, grace_ms),
        listed_garbage(
            context.store,
            replace(reach.state, garbage=(), garbage_lists=collectable_lists(reach.state, reach.now_ms, grace_ms)),
        ).keys,
    )


def _dead_staging(
    classified: Iterable[ClassifiedObject], now_ms: int, grace_ms: int
) -> tuple[tuple[CheckpointId, FencingToken], ...]:
    """Return the tokens with staged files that can no longer be published and are older than the grace period."""
    newest: dict[tuple[CheckpointId, FencingToken], int] = {}
    for item in classified:
        if item.staged_by is not None and not item.prunable and item.status is ObjectStatus.UNREACHABLE:
            newest[item.staged_by] = max(newest.get(item.staged_by, 0), item.stat.last_modified_ms)
    return tuple(sorted(owner for owner, written_ms in newest.items() if now_ms - written_ms >= grace_ms))


def _prune_plan(
    reach: JobReach, table: TableReach, classified: Iterable[ClassifiedObject], timeout_ms: int
) -> PrunePlan:
    """Return the pruning plan of one table. A complete walk knows its needs and every file that it ever published."""
    assert table.needs is not None
    garbage = table.opened.sink.garbage()
    return plan_pruning(
        reach.state,
        table.name,
        table.needs,
        garbage.lists(),
        [item.stat.key for item in classified if item.sink == table.name and item.prunable],
        session_id=None,
        now_ms=garbage.clock_ms(),
        timeout_ms=timeout_ms,
    )


def _list_garbage(context: JobContext, session_id: SessionId, reach: JobReach, entries: tuple[str, ...]) -> None:
    if entries:
        state = context.head().state
        listed = write_if_large(context.store, state, entries)
        request = ListGarbageRequest(session_id, reach.state.version, entries, listed)
        # The walk judged which pins have expired. A clock that has gone back since must not revive them.
        context.transact(request, at_least_ms=reach.now_ms)


def _delete(context: JobContext, session_id: SessionId, plan: _CollectionPlan, grace_ms: int) -> int:
    """Delete due entries, each after a fresh read of the head. An entry that the head no longer lists stays."""
    deleted = failed = judged_ms = 0
    done: list[str] = []
    before = context.head().state
    for entry in plan.due:
        state = context.head().state
        judged_ms = max(judged_ms, context.store.clock_ms())
        if entry not in collectable(state, judged_ms, grace_ms):
            continue
        deleted_entries, count = delete_entries(context, state, (entry,))
        done += deleted_entries
        deleted += count
        failed += not deleted_entries
        if failed == MAX_FAILED_DROPS:
            break
    lists: dict[str, ListProgress] = {}
    while failed < MAX_FAILED_DROPS:
        state = context.head().state
        judged_ms = max(judged_ms, context.store.clock_ms())
        due = (_with_progress(named, lists) for named in collectable_lists(state, judged_ms, grace_ms))
        progress, count = delete_listed(context, state, [named for named in due if named.done < named.count])
        if not progress:
            break
        deleted += count
        for step in progress:
            before_step = lists.get(step.sha256)
            lists[step.sha256] = (
                step if before_step is None else replace(step, failed=(*before_step.failed, *step.failed))
            )
            failed += len(step.failed)
    if done or lists:
        request = ForgetCollectedRequest(session_id, tuple(done), grace_ms, tuple(lists.values()))
        # The objects are deleted, so the record must be accepted even if the clock has gone back since.
        result = context.transact(request, at_least_ms=judged_ms)
        delete_unnamed_lists(context, before, result.state)
    fold_garbage(context, session_id, context.head().state, grace_ms)
    for owner in plan.staged:
        discard(context, *owner)
    dead = [*plan.probes, *plan.vetoes, *plan.landings]
    context.store.delete(dead)
    return deleted + len(dead)


def _with_progress(named: GarbageList, lists: dict[str, ListProgress]) -> GarbageList:
    """Return the list, advanced to the progress of this collection."""
    progress = lists.get(named.sha256)
    return named if progress is None else replace(named, done=max(named.done, progress.done))


def _report(reach: JobReach, plan: _CollectionPlan, grace_ms: int, dry_run: bool) -> Collection:
    due = {entry.prefix for entry in plan.due} | plan.due_listed
    waiting = reach.listed.keys - due
    return Collection(
        job=reach.state.job,
        manifest_version=reach.state.version,
        grace_ms=grace_ms,
        dry_run=dry_run,
        unreachable=tuple(describe(reach, item) for item in plan.unreachable),
        listed=plan.entries,
        due=tuple(sorted(due)),
        waiting=len(waiting),
        probes=plan.probes,
        vetoes=plan.vetoes,
        landings=plan.landings,
        compactable_entries=horizon(reach.state) - 1 - reach.state.compacted,
        tables=tuple(table.report() for table in plan.tables),
        staged=tuple(f"checkpoint {checkpoint_id}, token {token}" for checkpoint_id, token in plan.staged),
    )
