"""Collection of garbage by hand: what `milepost gc` plans and does (I8).

Two phases, both safe beside a running epoch and at any crash. One: what a complete walk of every root did not reach is
listed as garbage, by a transition that lands only on the very version that was walked. Two: entries that have been
listed for the whole grace period are deleted, each after a fresh look at the head. It takes no leadership and fences
nobody. At a sink go, through the sink's own `abort`, what an aborted or a losing token staged; and, in two phases with
a list beside the table, published files that no retained checkpoint needs any more (`table_pruning.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from milepost.errors import CommitConflict, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.discard import discard
from milepost.jobmaster.retention.fsck import Placed, StoredObject, describe, place_objects
from milepost.jobmaster.retention.garbage_lists import fold, forget_lists, listed_in, write_if_large
from milepost.jobmaster.retention.log_compaction import compact_all
from milepost.jobmaster.retention.reachability import JobReach, TableReach, walk_job
from milepost.jobmaster.retention.subsumption import MAX_FAILED_DROPS, delete_entries, delete_listed
from milepost.jobmaster.retention.table_pruning import PrunePlan, TablePruning, carry_out, plan_pruning
from milepost.protocol.manifest.transaction.requests import ForgetCollectedRequest, ListGarbageRequest, ListProgress
from milepost.protocol.manifest.upkeep.collection import MAX_LISTED
from milepost.protocol.manifest.upkeep.compaction import horizon
from milepost.protocol.manifest.upkeep.garbage import listable
from milepost.protocol.records.ids import CheckpointId, FencingToken, SessionId
from milepost.protocol.records.manifest_state import Garbage, GarbageList
from milepost.protocol.retention.reach import ObjectStatus
from milepost.protocol.retention.retention import collectable, collectable_lists, minimum_grace_ms, unreferenced

_LOG = logging.getLogger(__name__)

_WALKS = 5
_MAX_ROOTS = 4
"""At most so many roots of savepoints are listed at once: the state lists them by themselves."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one walk allows.

    Attributes:
        unreachable: objects of the job's own store that nothing reaches; `entries` stands for them in the list.
        staged: (checkpoint, token) whose leftovers at the sinks may go now: proven dead for the whole grace period.
        tables: per sink, which published files may be listed or deleted.
        probes: what killed start-up probes left before the grace; nothing ever refers to them, so one phase is enough.
        vetoes: failing rows of vetoed epochs that are kept no longer; likewise.
        due: entries of the garbage list that may be deleted now.
        due_listed: keys of lists that may.
    """

    unreachable: tuple[Placed, ...]
    entries: tuple[str, ...]
    staged: tuple[tuple[CheckpointId, FencingToken], ...]
    tables: tuple[PrunePlan, ...]
    probes: tuple[str, ...]
    vetoes: tuple[str, ...]
    due: tuple[Garbage, ...]
    due_listed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Collection:
    """What a collection does, or would do.

    Attributes:
        listed: entries that it lists. due: may be deleted. waiting: how many are neither.
        probes, vetoes, staged: that go at once; see `_Plan`. compactable_entries: of the manifest log.
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
    compactable_entries: int
    tables: tuple[TablePruning, ...]
    staged: tuple[str, ...]
    deleted_objects: int = 0
    pruned_files: int = 0


def collect_garbage(
    context: JobContext, session_id: SessionId, timeout_ms: int, *, dry_run: bool = False
) -> Collection:
    """List what is provably unreachable, and delete what has been listed long enough.

    Args:
        session_id: for the history; it need not, and does not, lead.
        timeout_ms: `checkpointing.timeout` of the job: the grace period is longer than any of its timeouts.
        dry_run: change nothing, only return the plan.
    Raises:
        StateCorrupt: not every root can be walked: nothing is provably unreachable, nothing was changed.
        CommitConflict: the head moved during each of a few walks; nothing was deleted.
    """
    grace_ms = minimum_grace_ms(timeout_ms)
    for _ in range(_WALKS):
        reach = _walk(context)
        plan = _plan(context, reach, timeout_ms)
        report = _report(reach, plan, grace_ms, dry_run)
        if dry_run:
            return report
        try:
            _list(context, session_id, reach, plan.entries)
        except CommitConflict:
            continue
        deleted = _delete(context, session_id, plan, grace_ms)
        compact_all(context, session_id)
        pruned = sum(carry_out(table.opened.sink, its) for table, its in zip(reach.tables, plan.tables, strict=True))
        return replace(report, deleted_objects=deleted, pruned_files=pruned)
    raise CommitConflict(
        f"job {context.spec.name}: the head moved during each of {_WALKS} walks. Nothing was listed or deleted.",
        hint="run it again when fewer sessions are busy with the job",
    )


def _walk(context: JobContext) -> JobReach:
    reach = walk_job(context)
    if not reach.complete:
        problems = [*reach.faults, *reach.conflicts]
        raise StateCorrupt(
            f"job {reach.state.job}: not every root can be walked, so nothing is provably unreachable. Nothing was"
            f" changed.\n{problems[0]}",
            hint=f"milepost fsck {reach.state.job} names all that is damaged",
            problems=problems,
        )
    return reach


def _plan(context: JobContext, reach: JobReach, timeout_ms: int) -> _Plan:
    grace_ms = minimum_grace_ms(timeout_ms)
    placed = list(place_objects(reach))
    own = [item for item in placed if item.sink is None]
    unreachable = tuple(item for item in own if item.status is ObjectStatus.UNREACHABLE)
    kept = [item.stat.key for item in own if item.status is not ObjectStatus.UNREACHABLE]
    entries = unreferenced([kept, reach.references], [[item.stat.key for item in unreachable]])
    return _Plan(
        unreachable,
        (*listable(entries)[:MAX_LISTED], *sorted(set(entries) - set(listable(entries)))[:_MAX_ROOTS]),
        _dead_staging(placed, reach.now_ms, grace_ms),
        tuple(_prune_plan(reach, table, placed, timeout_ms) for table in reach.tables),
        tuple(
            item.stat.key
            for item in own
            if item.status in (ObjectStatus.PROBE, ObjectStatus.REPLACED_LIST)
            and reach.now_ms - item.stat.last_modified_ms >= grace_ms
        ),
        tuple(item.stat.key for item in own if item.status is ObjectStatus.EXPIRED),
        collectable(reach.state, reach.now_ms, grace_ms),
        listed_in(
            context.store,
            replace(reach.state, garbage=(), garbage_lists=collectable_lists(reach.state, reach.now_ms, grace_ms)),
        ).keys,
    )


def _dead_staging(
    placed: Iterable[Placed], now_ms: int, grace_ms: int
) -> tuple[tuple[CheckpointId, FencingToken], ...]:
    """Tokens that left files at a sink which nothing can publish any more, all of them written before the grace."""
    newest: dict[tuple[CheckpointId, FencingToken], int] = {}
    for item in placed:
        if item.staged_by is not None and not item.prunable and item.status is ObjectStatus.UNREACHABLE:
            newest[item.staged_by] = max(newest.get(item.staged_by, 0), item.stat.last_modified_ms)
    return tuple(sorted(owner for owner, written_ms in newest.items() if now_ms - written_ms >= grace_ms))


def _prune_plan(reach: JobReach, table: TableReach, placed: Iterable[Placed], timeout_ms: int) -> PrunePlan:
    """Return what may go of one table: a complete walk knows its needs, and every file that it ever published."""
    assert table.needs is not None
    garbage = table.opened.sink.garbage()
    return plan_pruning(
        reach.state,
        table.name,
        table.needs,
        garbage.lists(),
        [item.stat.key for item in placed if item.sink == table.name and item.prunable],
        session_id=None,
        now_ms=garbage.clock_ms(),
        timeout_ms=timeout_ms,
    )


def _list(context: JobContext, session_id: SessionId, reach: JobReach, entries: tuple[str, ...]) -> None:
    if entries:
        state = context.head().state
        listed = write_if_large(context.store, state, entries)
        request = ListGarbageRequest(session_id, reach.state.version, entries, listed)
        # Which pins' time is over was judged by the walk: a clock that has gone back since must not hold them again.
        context.transact(request, at_least_ms=reach.now_ms)


def _delete(context: JobContext, session_id: SessionId, plan: _Plan, grace_ms: int) -> int:
    """Delete what is due, each entry after a fresh look at the head: whatever it no longer allows stays."""
    deleted = failed = judged_ms = 0
    done: list[str] = []
    before = context.head().state
    for entry in plan.due:
        state = context.head().state
        judged_ms = max(judged_ms, context.store.clock_ms())
        if entry not in collectable(state, judged_ms, grace_ms):
            continue
        gone, count = delete_entries(context, state, (entry,))
        done += gone
        deleted += count
        failed += not gone
        if failed == MAX_FAILED_DROPS:
            break
    lists: dict[str, ListProgress] = {}
    while failed < MAX_FAILED_DROPS:
        state = context.head().state
        judged_ms = max(judged_ms, context.store.clock_ms())
        due = (_continued(one, lists) for one in collectable_lists(state, judged_ms, grace_ms))
        progress, count = delete_listed(context, state, [one for one in due if one.done < one.count])
        if not progress:
            break
        deleted += count
        for one in progress:
            known = lists.get(one.sha256)
            lists[one.sha256] = one if known is None else replace(one, failed=(*known.failed, *one.failed))
            failed += len(one.failed)
    if done or lists:
        request = ForgetCollectedRequest(session_id, tuple(done), grace_ms, tuple(lists.values()))
        # What is deleted is deleted: a clock that has gone back since must not refuse to say so.
        result = context.transact(request, at_least_ms=judged_ms)
        forget_lists(context, before, result.state)
    fold(context, session_id, context.head().state, grace_ms)
    for owner in plan.staged:
        discard(context, *owner)
    context.store.delete([*plan.probes, *plan.vetoes])
    return deleted + len(plan.probes) + len(plan.vetoes)


def _continued(named: GarbageList, lists: dict[str, ListProgress]) -> GarbageList:
    """Return the list, from where this collection has left it."""
    known = lists.get(named.sha256)
    return named if known is None else replace(named, done=max(named.done, known.done))


def _report(reach: JobReach, plan: _Plan, grace_ms: int, dry_run: bool) -> Collection:
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
        compactable_entries=horizon(reach.state) - 1 - reach.state.compacted,
        tables=tuple(table.report() for table in plan.tables),
        staged=tuple(f"checkpoint {checkpoint_id}, token {token}" for checkpoint_id, token in plan.staged),
    )
