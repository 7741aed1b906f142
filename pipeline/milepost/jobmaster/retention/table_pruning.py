"""Pruning of tables: what no retained checkpoint's table needs any more is listed, then deleted (I8).

That is published files. What a format's own log consists of is never deleted here. The marks that the table is beyond
go as well: of two moves the later decision counts, so a frozen writer of one of them finds a greater number.

Order of a look: list the objects of each table -> read the manifest's head, then every retained checkpoint's metadata
-> read the table's position and marks. Files that are needed by nothing are written to a list beside the table (phase
one). A later leader, after the grace period, deletes what an older list names and its own look finds needed by nothing
(phase two). Stopped between any two steps, the next look goes on. Unknown needs, and unknown outcomes, keep everything.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.dropped_sinks import DroppedFiles, DroppedSink, ListedTable, dropped_sinks
from milepost.jobmaster.retention.job_tables import forget_table, job_tables
from milepost.jobmaster.retention.left_tables import empty, is_needed
from milepost.jobmaster.retention.table_references import OpenedTable, TableNeeds
from milepost.protocol.records.ids import SessionId
from milepost.protocol.records.layout import SINKS_PREFIX
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.pruning import is_scan_due, may_prune
from milepost.protocol.retention.retention import minimum_grace_ms
from milepost.sinks.contract import HousekeptSink
from milepost.sinks.records.table_garbage import MAX_LISTED, TableGarbageList, TableGarbageLists

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TablePruning:
    """Published files of a table that go. listed: by now on. due: may be deleted. waiting: how many others wait."""

    sink: str
    kept_because: str | None
    listed: tuple[str, ...]
    due: tuple[str, ...]
    waiting: int
    unreadable_lists: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What one look at a table allows.

    Attributes:
        sink: what people call the table.
        unknown: why nothing may go now, or None.
        fresh: the list to write; None when nothing new is needed by nothing.
        due: older lists that are due, each with those of its files that are still needed by nothing.
        waiting: how many files other lists name.
        unreadable: lists that cannot be read, with what is wrong: what they name is judged, and listed, anew.
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


def is_look_due(state: ManifestState, timeout_ms: int) -> bool:
    """Return whether the epoch that has just completed looks at the tables; asked of the state before it subsumes."""
    return is_scan_due(state, minimum_grace_ms(timeout_ms))


def prune_tables(context: JobContext, session_id: SessionId, timeout_ms: int) -> int:
    """Look at every table for the session that leads. A sink that fails is logged, and never fails the epoch.

    Returns: how many files were deleted.
    """
    silent: set[str] = set()
    try:
        listed: list[ListedTable] = [*_dropped(context), *_tables(context, silent)]
        state = context.head().state
        shares = {one.checkpoint_id: context.metadata(one).tables for one in state.checkpoints} if listed else {}
    except CheckpointError as error:
        _LOG.warning("no table is pruned now: %s", error.message)
        return 0
    leader = state.timeline().leader
    if leader is None or leader.session_id != session_id:
        return 0
    deleted = 0
    carried: dict[str, set[int]] = defaultdict(set)
    for one in reversed(listed):  # of each sink the one in force last: it forgets the marks that no other one carries
        try:
            if isinstance(one, OpenedTable) and not is_needed(shares.values(), one.table):
                empty(context, state, one.table, one.sink)
            needs = one.needs(state, shares)
            plan = _plan(state, one, needs, session_id, timeout_ms)
        except CheckpointError as error:
            _say_left(one.label, error)
            silent.add(one.name)
            continue
        deleted += carry_out(one.sink, plan)
        if isinstance(one, DroppedSink):
            continue
        if not one.table.in_force:
            carried[one.name].add(needs.position.number)
            _forget_if_gone(context, state, one, needs)
        elif needs.unknown is None and one.name not in silent:
            one.sink.forget_marks(below=needs.marks[0].number, kept=carried[one.name])
    return deleted


def _dropped(context: JobContext) -> list[DroppedSink]:
    return dropped_sinks(context, (stat.key for stat in context.store.list(SINKS_PREFIX)))


def _tables(context: JobContext, silent: set[str]) -> list[OpenedTable]:
    """List the tables that answer; `silent` gets the sinks of the others: nobody knows which marks those carry."""
    listed = []
    for table in job_tables(context, context.head().state):
        try:
            listed.append(OpenedTable.of(context, table))
        except CheckpointError as error:
            _say_left(table.label, error)
            silent.add(table.sink)
    return listed


def _plan(
    state: ManifestState, one: ListedTable, needs: TableNeeds, session_id: SessionId, timeout_ms: int
) -> PrunePlan:
    """Return what is pruned of a table now, and log why nothing is, or what else is wrong."""
    garbage = one.sink.garbage()
    plan = plan_pruning(
        state,
        one.label,
        needs,
        garbage.lists(),
        [item.stat.key for item in one.objects],
        session_id=session_id,
        now_ms=garbage.clock_ms(),
        timeout_ms=timeout_ms,
    )
    if plan.unknown is not None:
        _LOG.info("sink %s: nothing is pruned: %s", plan.sink, plan.unknown)
    for problem in plan.unreadable:
        _LOG.warning("sink %s: a list of garbage cannot be read, delete it: %s", plan.sink, problem)
    return plan


def _forget_if_gone(context: JobContext, state: ManifestState, one: OpenedTable, needs: TableNeeds) -> None:
    """Take a table off the register once nothing of ours lies below it; while something is pending, that may come."""
    left = any(item.staged_by is not None or item.list_of_garbage for item in one.objects)
    is_busy = any(timeline.pending is not None for timeline in state.timelines)
    if left or is_busy or needs.position.checkpoint_id or needs.unknown is not None:
        return
    try:
        forget_table(context, one.table)
    except CheckpointError as error:
        _say_left(one.label, error)


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
    """Say what may be listed and deleted of one table now.

    Args:
        state: what `needs` is about. sink: what people call the table.
        candidates: stored files that may be listed when nothing needs them.
        session_id: who leads; None for one who leads nothing. now_ms: of the sink's store, after `state` was read.
    """
    known = garbage.files
    if needs.unknown is not None:
        return PrunePlan(sink, needs.unknown, None, (), len(known), garbage.unreadable)
    grace_ms = minimum_grace_ms(timeout_ms)
    free = sorted(key for key in set(candidates) - known if needs.frees(state, key))[:MAX_LISTED]
    due = []
    for one in garbage.lists:
        if may_prune(state, session_id, one.manifest_version, one.since_ms, now_ms, grace_ms):
            files = tuple(file for file in one.files if needs.frees(state, file))
            if len(files) < len(one.files):
                _LOG.warning("sink %s: %s lists files that are needed: they stay", sink, one.key)
            due.append((one, files))
    fresh = TableGarbageList(state.version, now_ms, tuple(free)) if free else None
    waiting = len(known) - sum(len(one.files) for one, _ in due)
    return PrunePlan(sink, None, fresh, tuple(due), waiting, garbage.unreadable)


def carry_out(sink: HousekeptSink | DroppedFiles, plan: PrunePlan) -> int:
    """Write the new list, then delete what is due. Returns how many files were deleted.

    What cannot be written or deleted is logged; it stays, and stays listed, for the next look.
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
        _say_left(plan.sink, error)
    return deleted


def _say_left(sink: str, error: CheckpointError) -> None:
    _LOG.warning("sink %s: its table is pruned later: %s", sink, error.message)
