"""Sessions that are emitted again after they grow, merge or reopen.

A session is emitted when the watermark reaches its end; with early emission, in every epoch that brings it rows. If a
later row extends it, the new result replaces the old one when the start is unchanged. The results of other sessions
that merged into it are deleted. A session whose new end is after the watermark is open again, so its result is deleted
until the watermark reaches it::

    gap 10, watermark 30         a row at 12, allowed lateness 30      a row at 25
    [0, 10)  [20, 30) emitted    [0, 10) [12, 30): 20 is deleted,      [0, 10), [12, 35) is not done: 12 is deleted
                                 12 is emitted
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.operators.contract import ONLY_TABLE, Bools, OperatorOutput
from milepost.operators.rows.columns import key_columns
from milepost.operators.rows.deletes import with_deletes
from milepost.operators.rows.timers import due_since_firing
from milepost.operators.window.tumbling import StateTables, WindowStates
from milepost.operators.window.windowed import exclude_fired
from milepost.protocol.exchange import is_later
from milepost.protocol.records import EXPIRES_COLUMN, FIRED_COLUMN, TIMER_COLUMN

EMITTED_COLUMN = "__emitted"
"""State column (bool): whether the session, or what it was before this epoch, was emitted. Null: it was not."""


@dataclass(frozen=True, slots=True)
class MergedSessions:
    """Result of merging rows into sessions: changed state rows, and keys of the sessions that they absorbed."""

    changed: pa.Table
    moved: pa.Table


class SessionOperator(WindowStates, Protocol):
    """The part of a session operator that `SessionUpdatesRun` uses."""

    @property
    def output_schema(self) -> pa.Schema: ...

    def join(
        self, rows: pa.Table, lateness_us: int | None, tables: StateTables
    ) -> tuple[MergedSessions | None, pa.Table]:
        """Merge on-time rows into sessions. Return the merged sessions, if any, and the late rows."""

    def forget(self, firing_us: int | None, tables: StateTables) -> None:
        """Delete the values of expired sessions."""


class SessionUpdatesRun:
    """One subtask's epoch of sessions that may be emitted again. Everything is emitted at its end."""

    def __init__(self, operator: SessionOperator, tables: StateTables, fired_us: int | None) -> None:
        self._operator = operator
        self._tables, self._state = tables, tables[ONLY_TABLE]
        self._fired_us = fired_us
        self._pieces: list[pa.Table] = []

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Ingest on-time rows without emitting anything. Raises OperatorFailed."""
        joined, late = self._operator.join(rows, lateness_us, self._tables)
        if joined is not None:
            self._pieces += [joined.changed.select(list(self._operator.key)), joined.moved]
        yield OperatorOutput(self._operator.output_schema.empty_table(), late)

    def advance(self, firing_us: int | None) -> pa.Table:
        """Emit nothing: rows that follow may still extend a session that has ended."""
        return self._operator.output_schema.empty_table()

    def finish(self, firing_us: int | None) -> pa.Table:
        """Emit newly finished and changed sessions, then deletes of the emitted ones that reopened or merged."""
        fired = self._fired(firing_us)
        changed, deleted_rows = self._changed(firing_us)
        shown = pa.concat_tables([fired, exclude_fired(changed, self._fired_us, firing_us)])
        self._remember(shown, firing_us)
        operator = self._operator
        operator.forget(firing_us, self._tables)
        return with_deletes(operator.windowed.results(shown), deleted_rows, operator.key)

    def _fired(self, firing_us: int | None) -> pa.Table:
        """State rows of the sessions that `firing_us` reaches and no earlier firing did."""
        before_us = self._fired_us
        if not is_later(firing_us, before_us):
            return self._operator.state_schema.empty_table()
        return due_since_firing(self._state, TIMER_COLUMN, before_us, firing_us).filter(
            pc.field(FIRED_COLUMN).is_null()
        )

    def _changed(self, firing_us: int | None) -> tuple[pa.Table, pa.Table]:
        """Return the changed sessions to emit, and the keys of emitted sessions to delete."""
        operator = self._operator
        if not self._pieces:
            nothing = operator.state_schema.empty_table()
            return nothing, nothing
        sessions = self._state.group(key_columns(pa.concat_tables(self._pieces), operator.key))
        (now, shown), (started, there) = sessions.find(), sessions.find_at_start()
        if not operator.emission.early:
            shown = shown & _reached(now, TIMER_COLUMN, firing_us)
        emitted = there & pc.fill_null(started.column(EMITTED_COLUMN), False).to_numpy()
        return now.filter(pa.array(shown)), sessions.keys.filter(pa.array(emitted & ~shown))

    def _remember(self, shown: pa.Table, firing_us: int | None) -> None:
        """Flag sessions as emitted in state, unless they have expired."""
        emitted = pc.fill_null(shown.column(EMITTED_COLUMN), False).to_numpy()
        fresh = shown.filter(pa.array(~emitted & ~_reached(shown, EXPIRES_COLUMN, firing_us)))
        at = fresh.column_names.index(EMITTED_COLUMN)
        self._state.upsert(fresh.set_column(at, EMITTED_COLUMN, pa.array([True] * fresh.num_rows, pa.bool_())))


def _reached(rows: pa.Table, column: str, firing_us: int | None) -> Bools:
    """Return which times the firing watermark has reached. Null times count as not reached."""
    if firing_us is None:
        return np.zeros(rows.num_rows, dtype=np.bool_)
    reached: Bools = pc.fill_null(pc.less_equal(rows.column(column), firing_us), False).to_numpy()
    return reached
