"""Prune tables: list, then delete published files that no retained checkpoint needs (I8).

The files of a format's own log are never deleted here. Marks older than the table's position are deleted too. That is
safe, because of two moves the one with the greater number wins, so a stalled writer finds the greater number.

Order of a scan:
1. List the objects of each table.
2. Read the manifest's head, then the metadata of every retained checkpoint.
3. Read the table's position and marks.
4. Write the files that nothing needs to a list next to the table (phase one).
5. After the grace period a later leader deletes what an older list names and its own scan finds unneeded (phase two).
After a crash the next scan continues. If needs or outcomes are unknown, everything stays.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.tables.dropped_sinks import DroppedFiles, DroppedSink, ListedTable, list_dropped_sinks
from milepost.jobmaster.retention.tables.orphan_tables import empty_orphan_table, is_needed
from milepost.jobmaster.retention.tables.table_references import OpenedTable, TableNeeds
from milepost.jobmaster.retention.tables.tables_of_job import job_tables, unregister_table
from milepost.protocol.records import SINKS_PREFIX, ManifestState, SessionId
from milepost.protocol.retention import is_scan_due, may_prune, minimum_grace_ms
from milepost.sinks import HousekeptSink
from milepost.tables.records import MAX_LISTED, TableGarbageList, TableGarbageLists

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TablePruning:
    """Published files that nothing needs.

    Attributes:
        kept_because: why nothing is pruned; None if it may be. listed: files to add to a list now.
        due: files to delete now. waiting: number of listed files within their grace period.
    """

    sink: str
    kept_because: str | None
    listed: tuple[str, ...]
    due: tuple[str, ...]
    waiting: int
    unreadable_lists: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """The work that one scan of a table allows.

    Attributes:
        sink: the table's name in reports.
        unknown: why nothing may be deleted now, or None.
        fresh: the list to write; None if there are no new unneeded files.
        due: lists past their grace period, each with those of its files that are still unneeded.
        waiting: number of files in other lists.
        unreadable: lists that cannot be read, with the fault. Their files are examined and listed again.
    """

    sink: str
    unknown: str | None
    fresh: TableGarbageList | None
    due: tuple[tuple[TableGarbageList, tuple[str, ...]], ...]
    waiting: int
    unreadable: tuple[str, ...]

    def report(self) -> TablePruning:
        """Return the plan for people and programs."""
        return TablePruning(
            sink=self.sink,
            kept_because=self.unknown,
            listed=tuple(self.fresh.files) if self.fresh is not None else (),
            due=tuple(file for _, files in self.due for file in files),
            waiting=self.waiting,
            unreadable_lists=self.unreadable,
        )


def pruning_due(state: ManifestState, timeout_ms: int) -> bool:
    """Return whether the epoch that has just completed prunes the tables. Pass the state before it subsumes."""
    return is_scan_due(state, minimum_grace_ms(timeout_ms))


def prune_tables(context: JobContext, session_id: SessionId, timeout_ms: int) -> int:
    """Prune every table, if the session is the leader. A sink that fails is logged, and never fails the epoch.

    Returns: the number of deleted files.
    """
    failed_sinks: set[str] = set()
    try:
        listed: list[ListedTable] = [*_dropped(context), *_tables(context, failed_sinks)]
        state = context.head().state
        shares = {item.checkpoint_id: context.metadata(item).tables for item in state.checkpoints} if listed else {}
    except CheckpointError as error:
        _LOG.warning("no table is pruned now: %s", error.message)
        return 0
    leader = state.timeline().leader
    if leader is None or leader.session_id != session_id:
        return 0
    deleted = 0
    orphan_marks: dict[str, set[int]] = defaultdict(set)
    # The current table of each sink comes last, so that it keeps the marks that the sink's orphan tables show.
    for table in reversed(listed):
        try:
            if isinstance(table, OpenedTable) and not is_needed(shares.values(), table.table):
                empty_orphan_table(context, state, table.table, table.sink)
            needs = table.needs(state, shares)
            plan = _plan(state, table, needs, session_id, timeout_ms)
        except CheckpointError as error:
            _log_postponed(table.label, error)
            failed_sinks.add(table.name)
            continue
        deleted += execute(table.sink, plan)
        if isinstance(table, DroppedSink):
            continue
        if not table.table.is_current:
            orphan_marks[table.name].add(needs.position.number)
            _unregister_if_empty(context, state, table, needs)
        elif needs.unknown is None and table.name not in failed_sinks:
            table.sink.delete_marks(below=needs.marks[0].number, kept=orphan_marks[table.name])
    return deleted


def _dropped(context: JobContext) -> list[DroppedSink]:
    return list_dropped_sinks(context, (stat.key for stat in context.store.list(SINKS_PREFIX)))


def _tables(context: JobContext, failed_sinks: set[str]) -> list[OpenedTable]:
    """List the tables that answer. Adds the sinks of the others to `failed_sinks`: which marks they show is unknown."""
    listed = []
    for table in job_tables(context, context.head().state):
        try:
            listed.append(OpenedTable.of(context, table))
        except CheckpointError as error:
            _log_postponed(table.label, error)
            failed_sinks.add(table.sink)
    return listed


def _plan(
    state: ManifestState, table: ListedTable, needs: TableNeeds, session_id: SessionId, timeout_ms: int
) -> PrunePlan:
    """Return the pruning plan of a table. Logs why nothing is pruned, and which lists cannot be read."""
    garbage = table.sink.garbage()
    plan = plan_pruning(
        state,
        table.label,
        needs,
        garbage.lists(),
        [item.stat.key for item in table.objects],
        session_id=session_id,
        now_ms=garbage.clock_ms(),
        timeout_ms=timeout_ms,
    )
    if plan.unknown is not None:
        _LOG.info("sink %s: nothing is pruned: %s", plan.sink, plan.unknown)
    for problem in plan.unreadable:
        _LOG.warning("sink %s: a list of garbage cannot be read, delete it: %s", plan.sink, problem)
    return plan


def _unregister_if_empty(context: JobContext, state: ManifestState, table: OpenedTable, needs: TableNeeds) -> None:
    """Remove a table from the registry once the job has no files below it. A pending epoch may still add some."""
    has_files = any(item.staged_by is not None or item.list_of_garbage for item in table.objects)
    is_busy = any(timeline.pending is not None for timeline in state.timelines)
    if has_files or is_busy or needs.position.checkpoint_id or needs.unknown is not None:
        return
    try:
        unregister_table(context, table.table)
    except CheckpointError as error:
        _log_postponed(table.label, error)


def plan_pruning(
    state: ManifestState,
    sink: str,
    needs: TableNeeds,
    garbage: TableGarbageLists,
    candidates: Iterable[str],
    *,
    session_id: SessionId | None,
    now_ms: int,
    timeout_ms: int,
) -> PrunePlan:
    """Return which files of one table may be listed, and which may be deleted now.

    Args:
        state: the state that `needs` was computed from. sink: the table's name in reports.
        candidates: stored files that may be listed if nothing needs them.
        session_id: of the leader; None for a caller that does not lead.
        now_ms: the clock of the sink's store, read after `state`.
    """
    listed = garbage.files
    if needs.unknown is not None:
        return PrunePlan(sink, needs.unknown, None, (), len(listed), garbage.unreadable)
    grace_ms = minimum_grace_ms(timeout_ms)
    free = sorted(key for key in set(candidates) - listed if needs.is_free(state, key))[:MAX_LISTED]
    due = []
    for garbage_list in garbage.lists:
        since = garbage_list.manifest_version, garbage_list.since_ms
        if may_prune(state, session_id, *since, now_ms, grace_ms):
            files = tuple(file for file in garbage_list.files if needs.is_free(state, file))
            if len(files) < len(garbage_list.files):
                _LOG.warning("sink %s: %s lists files that are needed: they stay", sink, garbage_list.key)
            due.append((garbage_list, files))
    fresh = TableGarbageList(state.version, now_ms, tuple(free)) if free else None
    waiting = len(listed) - sum(len(garbage_list.files) for garbage_list, _ in due)
    return PrunePlan(sink, None, fresh, tuple(due), waiting, garbage.unreadable)


def execute(sink: HousekeptSink | DroppedFiles, plan: PrunePlan) -> int:
    """Write the new list, then delete due files. Returns the number of deleted files.

    A failure is logged. The remaining files stay listed for the next scan.
    """
    garbage = sink.garbage()
    deleted = 0
    try:
        if plan.fresh is not None:
            garbage.add(plan.fresh)
        for listed, files in plan.due:
            garbage.delete(listed, files)
            deleted += len(files)
    except CheckpointError as error:
        _log_postponed(plan.sink, error)
    return deleted


def _log_postponed(sink: str, error: CheckpointError) -> None:
    _LOG.warning("sink %s: its table is pruned later: %s", sink, error.message)
