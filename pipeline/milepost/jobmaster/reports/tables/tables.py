"""Tables read a sink's rows and an operator's state, and verify what they consist of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from milepost.epoch.metadata import CheckpointMetadata, OperatorTable
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
from milepost.protocol.records.checkpoints import CompletedCheckpoint, ObjectHandle
from milepost.protocol.records.ids import CheckpointId, format_checkpoints
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.ancestry import open_forks, timeline_ancestry
from milepost.protocol.retention.retention import handle_conflicts
from milepost.sinks.records.committables import decode_schema
from milepost.sinks.records.contents import TableContents
from milepost.spill.spilled_rows import SpilledRows
from milepost.storage.concurrency.parallel_map import parallel_map
from milepost.storage.object_handles import check_handle, stat_handle

_SHOWN = 12
"""Of all problems, so many stand in the message; its details have the others too."""


@dataclass(frozen=True, slots=True)
class VerifiedObjects:
    """What was checked, and is whole as far as the job goes on from it.

    Attributes:
        objects: how many. deep: they were read, not only looked for.
        unasked: tables that the spec does not lead to, of which nothing was looked for, in words.
        discarded: damage that only discarded checkpoints are affected by, as text.
    """

    checkpoints: tuple[int, ...]
    objects: int
    deep: bool
    unasked: tuple[str, ...]
    discarded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _VerifiedCheckpoint:
    """What was checked of one checkpoint.

    Attributes:
        handles: what it refers to in the job's own store. asked: how many tables were.
        tables: what the sinks' tables consist of.
    """

    handles: Sequence[ObjectHandle] = ()
    asked: int = 0
    tables: Mapping[str, TableContents] = field(default_factory=dict)
    problems: Sequence[str] = ()


class Tables:
    """Read-only views of one job's data."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def read(self, sink: str, at: int | None, where: str | None = None, limit: int | None = None) -> SpilledRows:
        """Return the sink's table as its readers see it now, or as of a retained checkpoint.

        Args:
            where: as `rows_where` takes it. limit: of the rows that are kept.
        """
        self._context.sink(sink)  # a sink that the spec does not have is refused before anything else
        if at is None:
            contents = current_contents(self._context, sink)
        else:
            state = self._context.head().state
            contents = contents_to_read(self._context, self._context.metadata(_retained(state, at)), sink)
        if contents is None:
            self._context.head()  # a job that has never run is told so
            when = "yet" if at is None else f"by checkpoint {at}"
            url = self._context.sink_config(sink).url
            raise NotFound(f"sink {sink}: nothing has been published to {url} {when}.", sink=sink)
        schema = decode_schema(contents.schema)
        pieces = sink_for(self._context, sink, contents).pieces(contents)
        if where is not None:
            rows_where(schema.empty_table(), where)  # what cannot be used is refused before anything is read
            pieces = (rows_where(rows, where) for rows in pieces)
        return SpilledRows(schema, pieces, limit)

    def state(self, name: str, at: int | None) -> SpilledRows:
        """Return all live rows of one operator's state, over all key groups, as they are stored.

        Args:
            name: its uid; ``uid.table`` of one that keeps several.
        """
        side = StateSide(*self._table(name, at))
        return SpilledRows(side.schema, rows_by_hash(self._context.store, side))

    def state_values(self, name: str, at: int | None) -> SpilledRows:
        """As `state`, as a person reads them, in the order of their key; see `state_values`."""
        side = StateSide(*self._table(name, at))

        def shown(rows: pa.Table) -> pa.Table:
            return drop_total_column(show_row_counts(state_values(self._context, side.metadata, side.table, rows)))

        return SpilledRows(shown(side.schema.empty_table()).schema, map(shown, rows_by_key(self._context.store, side)))

    def _table(self, name: str, at: int | None) -> tuple[CheckpointMetadata, OperatorTable]:
        checkpoint = self.checkpoint(at)
        metadata = self._context.metadata(checkpoint)
        tables = metadata.state_tables
        if name not in tables:
            known = ", ".join(sorted(tables)) or "none"
            raise NotFound(
                f"checkpoint {checkpoint.checkpoint_id} has no state of an operator {name}; stateful operators: "
                f"{known}",
                uid=name,
            )
        return metadata, tables[name]

    def verify(self, at: int | None, *, deep: bool) -> VerifiedObjects:
        """Check one checkpoint, or all retained ones: existence and size; with `deep`, every checksum and state row.

        Raises: StateCorrupt, naming each broken object and the checkpoint that needs it. StoreUnavailable,
            EnvironmentUnusable: nobody knows; what cannot be asked for is not broken.
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
            checked += 1 + len(verified.handles) + verified.asked
            for problem in verified.problems:
                needed_by.setdefault(problem, []).append(checkpoint.checkpoint_id)
        required = _required(state) if at is None else {checkpoint.checkpoint_id for checkpoint in checkpoints}
        problems: list[str] = []
        discarded: list[str] = []
        for problem, by in needed_by.items():
            (discarded if required.isdisjoint(by) else problems).append(f"{format_checkpoints(by)}: {problem}")
        problems += handle_conflicts(described)
        ids = [int(checkpoint.checkpoint_id) for checkpoint in checkpoints]
        if problems:
            problems += discarded
            shown = "\n".join(problems[:_SHOWN])
            head = state.timeline().head
            if any(head in by for by in needed_by.values()):
                way_on = self._rollback_hint(state)
            else:
                way_on = "; the head is whole, so the job goes on without them" if head in ids else ""
            raise StateCorrupt(
                f"{len(problems)} of {checked} objects of job {state.job} are broken:\n{shown}",
                hint=f"restore the objects from a copy of the bucket{way_on}; nothing was changed or skipped",
                problems=problems,
            )
        unasked = unchecked_tables(self._context, tables)
        return VerifiedObjects(tuple(ids), checked, deep, unasked, tuple(discarded))

    def _rollback_hint(self, state: ManifestState) -> str:
        """Return what else helps when it is the head that is broken."""
        target = newest_intact_ancestor(self._context, state)
        return "" if target is None else f", or go back: milepost rollback {state.job} --to {target}"

    def _verify(self, checkpoint: CompletedCheckpoint, *, deep: bool) -> _VerifiedCheckpoint:
        try:
            metadata = self._context.stored_metadata(checkpoint)
        except (NotFound, StateCorrupt) as error:
            return _VerifiedCheckpoint(problems=[error.message])
        store, handles = self._context.store, metadata.handles()
        check = check_handle if deep else stat_handle

        def problem(handle: ObjectHandle) -> str | None:
            try:
                check(store, handle)
            except (NotFound, StateCorrupt) as error:
                return error.message
            return None

        def of_table(name: str) -> list[str] | None:
            return table_problems(self._context, name, metadata.tables[name], deep=deep)

        problems = [found for found in parallel_map(store, problem, handles) if found is not None]
        self._context.cache_metadata(checkpoint.metadata, metadata)
        of_tables = parallel_map(store, of_table, metadata.tables)
        asked = [found for found in of_tables if found is not None]
        problems += chain.from_iterable(asked)
        if deep and not problems:
            for table in metadata.state_tables.values():
                check_rows(store, StateSide(metadata, table))
        return _VerifiedCheckpoint(handles, len(asked), metadata.tables, problems)

    def checkpoint(self, at: int | None) -> CompletedCheckpoint:
        """Return a retained checkpoint; None is the head. Raises NotFound."""
        return _retained(self._context.head().state, at)


def _required(state: ManifestState) -> set[CheckpointId]:
    """Return the checkpoints that the live timeline or a fork consists of; all others are discarded."""
    timelines = (state.timeline(), *open_forks(state))
    return {one.checkpoint_id for timeline in timelines for one in timeline_ancestry(state, timeline)}


def _retained(state: ManifestState, at: int | None) -> CompletedCheckpoint:
    wanted = state.timeline().head if at is None else CheckpointId(at)
    checkpoint = state.checkpoint(wanted)
    if checkpoint is None:
        retained = ", ".join(str(item.checkpoint_id) for item in state.checkpoints) or "none"
        raise NotFound(
            f"job {state.job} retains no completed checkpoint {wanted}; retained: {retained}", checkpoint_id=wanted
        )
    return checkpoint
