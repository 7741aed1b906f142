"""The diff compares two retained checkpoints: state by key, objects consumed, rows of each table.

Handles are compared first: subtasks whose runs are the same in both are not read, and a run that both refer to is
fetched once. The two need not lie on one timeline, nor in order: what the second has and the first has not is added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from milepost.dataflow.operators.contract import EXPIRES_COLUMN
from milepost.dataflow.sources.planning.consumed import load
from milepost.epoch.metadata import CheckpointMetadata, OperatorTable
from milepost.epoch.renames import with_names_of
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.table_contents import is_known_table
from milepost.jobmaster.reports.tables.row_changes import RowChanges, changes_by_key, changes_of_rows
from milepost.jobmaster.reports.tables.state_values import shown_key, state_values, without_total
from milepost.jobmaster.reports.tables.tables import Tables, operator_rows
from milepost.protocol.records.errors import NotFound
from milepost.state.runs.handles import StateHandle

OPERATOR, SOURCE, SINK = "operator", "source", "sink"


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed of one operator's state, one source or one sink.

    Attributes:
        note: what the rows do not say; "" for nothing.
    """

    kind: str
    name: str
    changes: RowChanges
    note: str = ""


class Diff:
    """Two checkpoints of a job, which the caller holds by pins; id 0 is the empty state.

    Raises: NotFound: one of them is not retained.
    """

    def __init__(self, context: JobContext, before: int, after: int) -> None:
        self._context = context
        self._ids = (before, after)
        self._before, self._after = (self._metadata(at) for at in (before, after))

    def all(self) -> list[Difference]:
        """Return every operator, source and sink that one of them has, the second one's first."""
        # One after another: each holds what two checkpoints have of it.
        return [self.one(kind, name) for kind in (OPERATOR, SOURCE, SINK) for name in self._names(kind)]

    def one(self, kind: str, name: str) -> Difference:
        """Return one of them. Raises NotFound: neither checkpoint has it."""
        known = self._names(kind)
        if name not in known:
            raise NotFound(
                f"neither checkpoint {self._ids[0]} nor {self._ids[1]} has a {'stateful ' if kind == OPERATOR else ''}"
                f"{kind} {name}; known: {', '.join(known) or 'none'}"
            )
        return {OPERATOR: self._operator, SOURCE: self._source, SINK: self._sink}[kind](name)

    def _metadata(self, at: int) -> CheckpointMetadata | None:
        if at == 0:
            self._context.head()
            return None
        metadata = self._context.metadata(Tables(self._context).checkpoint(at))
        return with_names_of(self._context.job.spec, metadata)

    def _names(self, kind: str) -> list[str]:
        found: dict[str, None] = {}
        for metadata in (self._after, self._before):
            if metadata is not None:
                found |= dict.fromkeys(
                    {OPERATOR: metadata.state_tables, SOURCE: metadata.sources, SINK: metadata.tables}[kind]
                )
        return list(found)

    def _operator(self, name: str) -> Difference:
        old, new = (None if item is None else item.state_tables.get(name) for item in (self._before, self._after))
        if old is not None and new is not None:
            keys = [", ".join(table.state.key) for table in (old, new)]
            if keys[0] != keys[1]:
                note = f"begun anew by another key: it was ({keys[0]}), is ({keys[1]})"
                return Difference(OPERATOR, name, RowChanges(_NO_ROWS), note)
            old, new = _without_same(old, new)
        shown = new if new is not None else old
        assert shown is not None
        bodies: dict[str, bytes] = {}
        sides: list[pa.Table | None] = []
        values: list[pa.Table | None] = []
        for metadata, table in ((self._before, old), (self._after, new)):
            if metadata is None or table is None:
                sides.append(None)
                values.append(None)
                continue
            sides.append(operator_rows(self._context.store, metadata, table, bodies=bodies))
            values.append(state_values(self._context, metadata, table, sides[-1]))
            shared = set() if new is None else {run.key for handle in new.state.handles for run in handle.runs}
            for run in bodies.keys() - shared:
                del bodies[run]
        note = "" if old is not None and new is not None else f"only in checkpoint {self._ids[0 if new is None else 1]}"
        key, shown_values = shown.state.key, _tables(values)
        changes = changes_by_key(*_tables(sides), key, shown_values, shown_key(key, shown_values[1]))
        return Difference(OPERATOR, name, RowChanges(without_total(changes.table)), note)

    def _source(self, name: str) -> Difference:
        handles = [
            () if item is None or name not in item.sources else item.sources[name].consumed
            for item in (self._before, self._after)
        ]
        # A run that replaced older ones replaced them all: with a shared one, no other repeats what it holds.
        shared = set(handles[0]) & set(handles[1])
        tables = [
            _versions(load(self._context.store, [handle for handle in side if handle not in shared]).table)
            for side in handles
        ]
        sources = [None if item is None else item.sources.get(name) for item in (self._before, self._after)]
        horizons = {None if source is None else source.horizon_ms for source in sources}
        note = "what is removed is forgotten: old, and gone (`forget_after`)" if len(horizons) > 1 else ""
        return Difference(SOURCE, name, changes_of_rows(tables[0], tables[1]), note)

    def _sink(self, name: str) -> Difference:
        tables = [None if item is None else item.tables.get(name) for item in (self._before, self._after)]
        if tables[0] == tables[1]:
            return Difference(SINK, name, RowChanges(_NO_ROWS))
        if name not in {sink.name for sink in self._context.spec.sinks}:
            return Difference(SINK, name, RowChanges(_NO_ROWS), "no sink of the spec any more: its table is not read")
        known = [table for table in tables if table is not None]
        if not all(is_known_table(self._context, name, table) for table in known):
            return Difference(SINK, name, RowChanges(_NO_ROWS), "its table lay elsewhere: it is not read")
        sink = self._context.sink(name)
        old, new = _tables(
            [None if table is None else self._context.sink(name, table.address).read(table) for table in tables]
        )
        changes = changes_by_key(old, new, sink.key) if sink.key else changes_of_rows(old, new)
        return Difference(SINK, name, changes)


_NO_ROWS = pa.Table.from_batches([], pa.schema([("change", pa.string())]))


def _versions(consumed: pa.Table) -> pa.Table:
    """Return what identifies object versions; which checkpoint consumed one may differ between timelines."""
    modified = consumed.column("last_modified_ms").cast(pa.timestamp("ms", "UTC"))
    return consumed.select(["key", "etag", "size"]).append_column("last_modified", modified)


def _tables(sides: list[pa.Table | None]) -> tuple[pa.Table, pa.Table]:
    """Return the two tables, of which one at least is there, with an empty one for one that is not."""
    known = next(table for table in sides if table is not None)
    old, new = (known.schema.empty_table() if table is None else table for table in sides)
    return old, new


def _without_same(old: OperatorTable, new: OperatorTable) -> tuple[OperatorTable, OperatorTable]:
    """Both without the subtasks whose state is the same: same key groups, runs and columns, and nothing expired."""
    if not old.state.schema.equals(new.state.schema, check_metadata=True):
        return old, new
    expires = EXPIRES_COLUMN in old.state.schema.names
    former = {_identity(handle, fired if expires else None) for handle, fired in _parts(old)}
    same = former & {_identity(handle, fired if expires else None) for handle, fired in _parts(new)}
    sides = []
    for table in (old, new):
        kept = [item for item in _parts(table) if _identity(item[0], item[1] if expires else None) not in same]
        state = replace(table.state, handles=tuple(one for one, _ in kept))
        sides.append(replace(table, state=state, firing=tuple(one for _, one in kept)))
    return sides[0], sides[1]


def _parts(table: OperatorTable) -> list[tuple[StateHandle, int | None]]:
    return list(zip(table.state.handles, table.firing, strict=True))


def _identity(handle: StateHandle, fired_us: int | None) -> tuple[object, ...]:
    return handle.key_groups, tuple((run.key, run.sha256, run.valid) for run in handle.runs), fired_us
