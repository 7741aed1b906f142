"""Read a sink's rows and an operator's state, and verify their objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import pyarrow as pa

from milepost.epoch import CheckpointMetadata, OperatorTable
from milepost.errors import NotFound, StateCorrupt
from milepost.jobmaster.job.broken_head import newest_intact_ancestor
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import (
    contents_to_read,
    current_contents,
    sink_for,
    table_problems,
    unchecked_tables,
)
from milepost.jobmaster.reports.tables.row_filter import rows_where
from milepost.jobmaster.reports.tables.state_rows import StateSide, check_rows, rows_by_hash, rows_by_key
from milepost.jobmaster.reports.tables.state_values import drop_total_column, show_row_counts, state_values
from milepost.jobmaster.retention.landed_logs import LandedLogs
from milepost.protocol.landed import floor_of
from milepost.protocol.records import (
    CheckpointId,
    CompletedCheckpoint,
    ManifestState,
    ObjectHandle,
    ObjectStore,
    format_checkpoints,
)
from milepost.protocol.retention import handle_conflicts, open_forks, timeline_ancestry
from milepost.spill import SpilledRows
from milepost.storage import check_handle, stat_handle
from milepost.storage.concurrency import parallel_map
from milepost.tables.records import TableContents, decode_schema

_MAX_LISTED = 12
"""Maximum number of problems in the error message. Its details have all."""


@dataclass(frozen=True, slots=True)
class VerifiedObjects:
    """What was checked. Everything that the job continues from is intact.

    Attributes:
        objects: count of checked objects. deep: whether they were read, not only listed.
        unasked: tables that were not checked because the spec does not name them, as text.
        discarded: damage that only discarded checkpoints are affected by, as text.
    """

    checkpoints: tuple[int, ...]
    objects: int
    deep: bool
    unasked: tuple[str, ...]
    discarded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _VerifiedCheckpoint:
    """The result of checking one checkpoint.

    Attributes:
        handles: its objects in the job's own store. table_count: number of checked tables.
        tables: contents of the sinks' tables.
    """

    handles: Sequence[ObjectHandle] = ()
    table_count: int = 0
    tables: Mapping[str, TableContents] = field(default_factory=dict)
    problems: Sequence[str] = ()


class Tables:
    """Read-only views of one job's data."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def read(self, sink: str, at: int | None, where: str | None = None, limit: int | None = None) -> SpilledRows:
        """Return the sink's table as readers see it now, or as of a retained checkpoint.

        Args:
            where: see `rows_where`. limit: maximum number of rows.
        """
        self._context.sink(sink)  # refuse an unknown sink first
        if at is None:
            contents = current_contents(self._context, sink)
        else:
            state = self._context.head().state
            contents = contents_to_read(self._context, self._context.metadata(_retained(state, at)), sink)
        if contents is None:
            self._context.head()  # raises for a job that has never run
            when = "yet" if at is None else f"by checkpoint {at}"
            url = self._context.sink_config(sink).url
            raise NotFound(f"sink {sink}: nothing has been published to {url} {when}.", sink=sink)
        schema = decode_schema(contents.schema)
        pieces = sink_for(self._context, sink, contents).pieces(contents)
        if where is not None:
            rows_where(schema.empty_table(), where)  # refuse an unusable predicate before reading rows
            pieces = (rows_where(rows, where) for rows in pieces)
        return SpilledRows(schema, pieces, limit)

    def state(self, name: str, at: int | None) -> SpilledRows:
        """Return all live rows of one operator's state, over all key groups, as stored.

        Args:
            name: its uid, or ``uid.table`` if it has several state tables.
        """
        side = StateSide(*self._table(name, at))
        return SpilledRows(side.schema, rows_by_hash(self._context.store, side))

    def state_values(self, name: str, at: int | None) -> SpilledRows:
        """As `state`, but in readable form and in key order; see the module `state_values`."""
        side = StateSide(*self._table(name, at))

        def shown(rows: pa.Table) -> pa.Table:
            return drop_total_column(show_row_counts(state_values(self._context, side.metadata, side.table, rows)))

        return SpilledRows(shown(side.schema.empty_table()).schema, map(shown, rows_by_key(self._context.store, side)))

    def _table(self, name: str, at: int | None) -> tuple[CheckpointMetadata, OperatorTable]:
        checkpoint = self.checkpoint(at)
        metadata = self._context.metadata(checkpoint)
        tables = metadata.state_tables
        if name not in tables:
            names = ", ".join(sorted(tables)) or "none"
            raise NotFound(
                f"checkpoint {checkpoint.checkpoint_id} has no state of an operator {name}; stateful operators: "
                f"{names}",
                uid=name,
            )
        return metadata, tables[name]

    def verify(self, at: int | None, *, deep: bool) -> VerifiedObjects:
        """Check one checkpoint, or all retained ones: existence and size; with `deep`, every checksum and state row.

        The positions of landed sources must be on their logs. With `deep`, every record and object of a log is read.

        Raises: StateCorrupt: names each broken object and the checkpoint that needs it. StoreUnavailable,
            EnvironmentUnusable: a store did not answer, so the state of its objects is unknown.
        """
        state = self._context.head().state
        checkpoints = [_retained(state, at)] if at is not None else list(state.checkpoints)
        needed_by: dict[str, list[CheckpointId]] = {}
        described: list[tuple[str, ObjectHandle]] = []
        tables: dict[CheckpointId, Mapping[str, TableContents]] = {}
        checked = 0
        for checkpoint in checkpoints:
            verified = self._verify(checkpoint, deep=deep)
            tables[checkpoint.checkpoint_id] = verified.tables
            described += [(f"checkpoint {checkpoint.checkpoint_id}", handle) for handle in verified.handles]
            checked += 1 + len(verified.handles) + verified.table_count
            for problem in verified.problems:
                needed_by.setdefault(problem, []).append(checkpoint.checkpoint_id)
        required = _required(state) if at is None else {checkpoint.checkpoint_id for checkpoint in checkpoints}
        problems: list[str] = []
        discarded: list[str] = []
        for problem, by in needed_by.items():
            (discarded if required.isdisjoint(by) else problems).append(f"{format_checkpoints(by)}: {problem}")
        problems += handle_conflicts(described)
        if deep:
            log_problems, read = self._verify_logs(state)
            problems, checked = problems + log_problems, checked + read
        ids = [int(checkpoint.checkpoint_id) for checkpoint in checkpoints]
        if problems:
            problems += discarded
            listed = "\n".join(problems[:_MAX_LISTED])
            head = state.timeline().head
            if any(head in by for by in needed_by.values()):
                recovery = self._rollback_hint(state)
            else:
                recovery = "; the head is intact, so the job continues without them" if head in ids else ""
            raise StateCorrupt(
                f"{len(problems)} of {checked} objects of job {state.job} are broken:\n{listed}",
                hint=f"restore the objects from a copy of the bucket{recovery}; nothing was changed or skipped",
                problems=problems,
            )
        unasked = unchecked_tables(self._context, tables)
        return VerifiedObjects(tuple(ids), checked, deep, unasked, tuple(discarded))

    def _rollback_hint(self, state: ManifestState) -> str:
        """Return the rollback command as a clause, if the head is broken."""
        target = newest_intact_ancestor(self._context, state)
        return "" if target is None else f", or go back: milepost rollback {state.job} --to {target}"

    def _verify_logs(self, state: ManifestState) -> tuple[list[str], int]:
        """Read the logs of all landed sources to their ends. Returns the problems and the number of objects."""
        store, logs = self._context.store, LandedLogs(self._context.store)
        problems: list[str] = []
        checked = 0
        for source in sorted(self._context.spec.landed):
            try:
                stored = self._context.stored_name(source)
                log = logs.walk(stored, floor_of(state, stored))
            except StateCorrupt as error:
                problems.append(error.message)
                continue
            checked += len(log.digests) + len(log.objects)
            faults = parallel_map(store, partial(_handle_problem, store, check_handle), log.objects)
            problems += [f"source {source}: {fault}" for fault in faults if fault is not None]
        return problems, checked

    def _verify(self, checkpoint: CompletedCheckpoint, *, deep: bool) -> _VerifiedCheckpoint:
        try:
            metadata = self._context.stored_metadata(checkpoint)
        except (NotFound, StateCorrupt) as error:
            return _VerifiedCheckpoint(problems=[error.message])
        store, handles = self._context.store, metadata.handles()
        check = check_handle if deep else stat_handle

        def check_table(name: str) -> list[str] | None:
            return table_problems(self._context, name, metadata.tables[name], deep=deep)

        found = parallel_map(store, partial(_handle_problem, store, check), handles)
        problems = [text for text in found if text is not None]
        problems += self._position_problems(metadata)
        self._context.cache_metadata(checkpoint.metadata, metadata)
        table_results = parallel_map(store, check_table, metadata.tables)
        checked_tables = [result for result in table_results if result is not None]
        problems += chain.from_iterable(checked_tables)
        if deep and not problems:
            for table in metadata.state_tables.values():
                check_rows(store, StateSide(metadata, table))
        return _VerifiedCheckpoint(handles, len(checked_tables), metadata.tables, problems)

    def _position_problems(self, metadata: CheckpointMetadata) -> list[str]:
        """Return the landed sources of a checkpoint whose logs do not have what it has read, one line each."""
        problems: list[str] = []
        for source, position in metadata.log_positions.items():
            try:
                if self._context.stored_log(source).holds(position):
                    continue
                fault = "is missing or another one"
            except StateCorrupt as error:
                fault = f"cannot be read: {error.message}"
            problems.append(f"source {source}: record {position.next - 1} of log {position.log}, read last, {fault}")
        return problems

    def checkpoint(self, at: int | None) -> CompletedCheckpoint:
        """Return a retained checkpoint; None is the head. Raises NotFound."""
        return _retained(self._context.head().state, at)


def _handle_problem(
    store: ObjectStore, check: Callable[[ObjectStore, ObjectHandle], object], handle: ObjectHandle
) -> str | None:
    try:
        check(store, handle)
    except (NotFound, StateCorrupt) as error:
        return error.message
    return None


def _required(state: ManifestState) -> set[CheckpointId]:
    """Return the checkpoints of the live timeline and of open forks. All others are discarded."""
    timelines = (state.timeline(), *open_forks(state))
    return {checkpoint.checkpoint_id for timeline in timelines for checkpoint in timeline_ancestry(state, timeline)}


def _retained(state: ManifestState, at: int | None) -> CompletedCheckpoint:
    checkpoint_id = state.timeline().head if at is None else CheckpointId(at)
    checkpoint = state.checkpoint(checkpoint_id)
    if checkpoint is None:
        retained = ", ".join(str(item.checkpoint_id) for item in state.checkpoints) or "none"
        raise NotFound(
            f"job {state.job} retains no completed checkpoint {checkpoint_id}; retained: {retained}",
            checkpoint_id=checkpoint_id,
        )
    return checkpoint
