"""Compare two retained checkpoints: state by key, consumed objects, rows of each table.

Handles are compared first. Subtasks with the same runs on both sides are not read, and neither are files that both
tables have, if rows are only ever added. Everything else is read in key order, compared in steps, and spilled to disk
if it exceeds memory. The checkpoints can be on different timelines and in any order: a row that only the second one has
is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from milepost.epoch import CheckpointMetadata, OperatorTable, with_names_of
from milepost.errors import NotFound
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import is_readable_table, sink_for
from milepost.jobmaster.reports.tables.row_changes import (
    CHANGE,
    RowChanges,
    Sides,
    align_types,
    changes_by_key,
    changes_of_rows,
    compare_by_columns,
    compare_by_key,
)
from milepost.jobmaster.reports.tables.state_rows import StateSide, changed_by_key, rows_by_key
from milepost.jobmaster.reports.tables.state_values import drop_total_column, shown_key, state_values
from milepost.jobmaster.reports.tables.tables import Tables
from milepost.protocol.records import EXPIRES_COLUMN
from milepost.sinks import SinkMode
from milepost.sources.planning import load
from milepost.state.runs import StateHandle
from milepost.tables.records import TableContents, decode_schema

OPERATOR, SOURCE, SINK = "operator", "source", "sink"


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed in one operator's state, one source or one sink.

    Attributes:
        note: information that is not in the rows, or "".
    """

    kind: str
    name: str
    changes: RowChanges
    note: str = ""


class Diff:
    """Two checkpoints of a job, which the caller has pinned. Id 0 is the empty state.

    Args:
        limit: maximum number of rows per difference; None: all.
    Raises: NotFound: one of them is not retained.
    """

    def __init__(self, context: JobContext, before: int, after: int, limit: int | None = None) -> None:
        self._context, self._limit = context, limit
        self._ids = (before, after)
        self._before, self._after = (self._metadata(at) for at in (before, after))

    def all(self) -> list[Difference]:
        """Return the difference of each operator, source and sink, those of the second checkpoint first."""
        return [self.one(kind, name) for kind in (OPERATOR, SOURCE, SINK) for name in self._names(kind)]

    def one(self, kind: str, name: str) -> Difference:
        """Return one difference. Raises NotFound: neither checkpoint has it."""
        names = self._names(kind)
        if name not in names:
            raise NotFound(
                f"neither checkpoint {self._ids[0]} nor {self._ids[1]} has a {'stateful ' if kind == OPERATOR else ''}"
                f"{kind} {name}; known: {', '.join(names) or 'none'}"
            )
        return {OPERATOR: self._operator, SOURCE: self._source, SINK: self._sink}[kind](name)

    def _metadata(self, at: int) -> CheckpointMetadata | None:
        if at == 0:
            self._context.head()
            return None
        metadata = self._context.metadata(Tables(self._context).checkpoint(at))
        return with_names_of(self._context.job.spec, metadata)

    def _names(self, kind: str) -> list[str]:
        names: dict[str, None] = {}
        for metadata in (self._after, self._before):
            if metadata is not None:
                names |= dict.fromkeys(
                    {OPERATOR: metadata.state_tables, SOURCE: metadata.sources, SINK: metadata.tables}[kind]
                )
        return list(names)

    def _operator(self, name: str) -> Difference:
        old, new = (None if item is None else item.state_tables.get(name) for item in (self._before, self._after))
        if old is not None and new is not None:
            keys = [", ".join(table.state.key) for table in (old, new)]
            if keys[0] != keys[1]:
                note = f"restarted with another key: it was ({keys[0]}), is ({keys[1]})"
                return Difference(OPERATOR, name, _NO_CHANGES, note)
            old, new = _without_unchanged(old, new)
        sides = [
            None if metadata is None or table is None else StateSide(metadata, table)
            for metadata, table in ((self._before, old), (self._after, new))
        ]
        existing = [side for side in sides if side is not None]
        key = existing[-1].table.state.key
        empty = align_types(*_tables([None if side is None else side.schema.empty_table() for side in sides]), key)

        def changes(rows: Sides) -> pa.Table:
            values = [
                None if side is None else state_values(self._context, side.metadata, side.table, rows_of)
                for side, rows_of in zip(sides, rows, strict=True)
            ]
            shown = _tables(values)
            return drop_total_column(changes_by_key(*rows, key, shown, shown_key(key, shown[1])))

        note = "" if len(existing) > 1 else f"only in checkpoint {self._ids[0 if new is None else 1]}"
        return Difference(OPERATOR, name, self._changes(self._states(sides, empty, key), empty, changes), note)

    def _states(self, sides: Sequence[StateSide | None], empty: Sides, key: Sequence[str]) -> Iterable[Sides]:
        """Return the rows of two states in steps. Rows that both have may be omitted."""
        store, (before, after) = self._context.store, sides
        if before is not None and after is not None and before.is_comparable(after):
            return changed_by_key(store, before, after)
        types = {name: empty[0].schema.field(name).type for name in key}
        streams = [() if side is None else rows_by_key(store, side, types) for side in sides]
        return compare_by_key((streams[0], streams[1]), empty, key)

    def _changes(self, steps: Iterable[Sides], empty: Sides, changes: Callable[[Sides], pa.Table]) -> RowChanges:
        """Collect the changes of each step. empty: both sides without rows."""
        return RowChanges(changes(empty).schema, map(changes, steps), self._limit)

    def _source(self, name: str) -> Difference:
        handles = [
            () if item is None or name not in item.sources else item.sources[name].consumed
            for item in (self._before, self._after)
        ]
        # A compacted run replaces all older ones. So if both sides share a run, no other run repeats its objects.
        shared = set(handles[0]) & set(handles[1])
        tables = [
            _versions(load(self._context.store, [handle for handle in side if handle not in shared]).table)
            for side in handles
        ]
        sources = [None if item is None else item.sources.get(name) for item in (self._before, self._after)]
        horizons = {None if source is None else source.horizon_ms for source in sources}
        note = "removed objects are forgotten: old and deleted (`forget_after`)" if len(horizons) > 1 else ""
        empty = _tables([rows.slice(0, 0) for rows in tables])
        steps = compare_by_columns([tables[0]], [tables[1]], empty)
        changes = self._changes(steps, empty, lambda rows: changes_of_rows(*rows))
        return Difference(SOURCE, name, changes, note)

    def _sink(self, name: str) -> Difference:
        tables = [None if item is None else item.tables.get(name) for item in (self._before, self._after)]
        if tables[0] == tables[1]:
            return Difference(SINK, name, _NO_CHANGES)
        if name not in {sink.name for sink in self._context.spec.sinks}:
            return Difference(SINK, name, _NO_CHANGES, "the spec no longer has this sink, so its table is not read")
        existing = [table for table in tables if table is not None]
        if not all(is_readable_table(self._context, name, table) for table in existing):
            return Difference(SINK, name, _NO_CHANGES, "a variable in its path has changed, so its table is not read")
        mode, key = sink_for(self._context, name, existing[0]).stored_mode_and_key()
        empty = _tables([None if table is None else decode_schema(table.schema).empty_table() for table in tables])
        # In an upsert table the effect of a file depends on the other files, even in a table of totals without a key.
        shared = frozenset[str]() if mode is SinkMode.UPSERT else self._shared_files(name, existing)
        streams: list[Iterable[pa.Table]] = [
            () if table is None else sink_for(self._context, name, table).pieces(table, left_out=shared)
            for table in tables
        ]
        if key:
            widened = align_types(*empty, key)
            typed = [
                map(partial(_typed, like=side.schema, key=key), rows)
                for side, rows in zip(widened, streams, strict=True)
            ]
            steps = compare_by_key((typed[0], typed[1]), widened, key)
            return Difference(SINK, name, self._changes(steps, widened, lambda rows: changes_by_key(*rows, key)))
        steps = compare_by_columns(streams[0], streams[1], empty)
        return Difference(SINK, name, self._changes(steps, empty, lambda rows: changes_of_rows(*rows)))

    def _shared_files(self, name: str, tables: Sequence[TableContents]) -> frozenset[str]:
        """Return the keys of files that both tables have. They contribute the same rows to both append-only tables."""
        if len(tables) < 2 or tables[0].location != tables[1].location:
            return frozenset()
        files = [set(sink_for(self._context, name, table).files(table)) for table in tables]
        return frozenset(file.key for file in files[0] & files[1])


_NO_CHANGES = RowChanges(pa.schema([(CHANGE, pa.string())]))


def _typed(rows: pa.Table, *, like: pa.Schema, key: Sequence[str]) -> pa.Table:
    """Return rows with key columns in the types of a schema."""
    for name in key:
        at = rows.column_names.index(name)
        rows = rows.set_column(at, name, rows.column(name).cast(like.field(name).type))
    return rows


def _versions(consumed: pa.Table) -> pa.Table:
    """Return the columns that identify object versions, without the consuming checkpoint, which differs by timeline."""
    modified = consumed.column("last_modified_ms").cast(pa.timestamp("ms", "UTC"))
    return consumed.select(["key", "etag", "size"]).append_column("last_modified", modified)


def _tables(sides: list[pa.Table | None]) -> tuple[pa.Table, pa.Table]:
    """Return both tables, with an empty one for None. At least one exists."""
    existing = next(table for table in sides if table is not None)
    old, new = (existing.schema.empty_table() if table is None else table for table in sides)
    return old, new


def _without_unchanged(old: OperatorTable, new: OperatorTable) -> tuple[OperatorTable, OperatorTable]:
    """Return both sides without subtasks of equal state.

    State is equal if key groups, runs and columns are, and if nothing expired: with an expiry column, the firing
    watermarks have to be equal, too. Example: of three subtasks only subtask 1 wrote a new run, so only it is read.
    """
    if not old.state.schema.equals(new.state.schema, check_metadata=True):
        return old, new
    expires = EXPIRES_COLUMN in old.state.schema.names
    old_identities = {_identity(handle, fired if expires else None) for handle, fired in _parts(old)}
    unchanged = old_identities & {_identity(handle, fired if expires else None) for handle, fired in _parts(new)}
    sides = []
    for table in (old, new):
        changed = [item for item in _parts(table) if _identity(item[0], item[1] if expires else None) not in unchanged]
        state = replace(table.state, handles=tuple(handle for handle, _ in changed))
        sides.append(replace(table, state=state, firing=tuple(fired_us for _, fired_us in changed)))
    return sides[0], sides[1]


def _parts(table: OperatorTable) -> list[tuple[StateHandle, int | None]]:
    return list(zip(table.state.handles, table.firing, strict=True))


def _identity(handle: StateHandle, fired_us: int | None) -> tuple[object, ...]:
    return handle.key_groups, tuple((run.key, run.sha256, run.valid) for run in handle.runs), fired_us
