"""Materialized output: store emitted rows in a table, to retract them later.

The emitted rows of an aggregate are a function of its state at the start of the epoch. Those of windows are not,
because the state does not contain how far each subtask had fired. Those of a user's class are not either, because it
yields arbitrary rows. If operators read the updates of such an operator, its emitted rows are stored::

    output of the epoch   the table before   retracted      new
    a  3                  a  2               a  2           a  3
    b  1                                                    b  1
    c  deleted            c  5               c  5
    d  4                  d  4
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from milepost.operators.base.edges import DELETED_COLUMN, WINDOW_END
from milepost.operators.base.state_bounds import OUTPUT_TABLE
from milepost.operators.contract import (
    Ints,
    KeyedState,
    OperatorOutput,
    OperatorRun,
    StatefulOperator,
    StateTable,
)
from milepost.operators.rows.columns import key_columns
from milepost.operators.rows.retractions import NONE, retractions
from milepost.protocol.exchange import END_OF_TIME_US
from milepost.protocol.records import BEGINS_NULL, EXPIRES_COLUMN


class MaterializedOperator:
    """Wraps a `StatefulOperator` whose updates other operators read.

    Rows are identified by the output key. Its columns are normalized like all keys, with one zero and one NaN.
    """

    published_table = OUTPUT_TABLE

    def __init__(self, operator: StatefulOperator, outlives_us: int | None = None) -> None:
        """Args:
        outlives_us: how long after its `window_end` a row may be replaced. None: without limit.
        """
        self.operator, self._outlives_us = operator, outlives_us
        self.uid, self.routing_keys = operator.uid, operator.routing_keys
        self.output_key, self.output_schema = operator.output_key, operator.output_schema
        self.output_kind, self.combiner, self.listener = operator.output_kind, operator.combiner, operator.listener
        self.row_schema = pa.schema([field for field in self.output_schema if field.name != DELETED_COLUMN])
        kept = [self._kept(field) for field in self.row_schema]
        expires = [] if outlives_us is None else [pa.field(EXPIRES_COLUMN, pa.int64())]
        table = StateTable(self.output_key, operator.routing_keys[0], pa.schema([*kept, *expires]))
        self.tables: Mapping[str, StateTable] = {**operator.tables, OUTPUT_TABLE: table}

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> MaterializedRun:
        """Start one subtask's epoch. Raises OperatorFailed."""
        return MaterializedRun(self, self.operator.begin(tables, previous_firing_us), tables[OUTPUT_TABLE])

    def results(self, output: pa.Table) -> pa.Table:
        """Return the emitted rows from rows of the table. It no longer contains rows of expired windows."""
        return output.select(self.row_schema.names).cast(self.row_schema)

    def replace(self, rows: pa.Table, output: KeyedState) -> pa.Table:
        """Store an epoch's rows in the table. Return the retracted rows and the new ones.

        Args:
            rows: emitted rows (output schema) in order. Only the last row of a key counts.
        """
        occurring = output.group(key_columns(rows, self.output_key))
        last = np.zeros(len(occurring.first), dtype=np.int64)
        last[occurring.codes] = np.arange(rows.num_rows)
        rows = rows.take(pa.array(last))
        stays = np.ones(rows.num_rows, dtype=np.bool_)
        if DELETED_COLUMN in rows.column_names:
            stays = ~rows.column(DELETED_COLUMN).to_numpy()
        columns = {name: rows.column(name) for name in self.row_schema.names}
        columns |= dict(zip(self.output_key, occurring.keys.columns, strict=True))
        now = pa.table(columns, schema=self.row_schema).filter(pa.array(stays))
        found, known = occurring.find()
        before = found.select(self.row_schema.names).cast(self.row_schema).filter(pa.array(known))
        occurring.put(self._with_expiry(now), stays)
        output.delete(occurring.keys.filter(pa.array(known & ~stays)))
        return retractions(before, np.flatnonzero(known), now, np.flatnonzero(stays))

    def _kept(self, field: pa.Field) -> pa.Field:
        """Return the state column for an output column. If it is added later, it starts as null in existing rows."""
        return field.remove_metadata() if field.name in self.output_key else field.with_metadata({BEGINS_NULL: "1"})

    def _with_expiry(self, rows: pa.Table) -> pa.Table:
        if self._outlives_us is None:
            return rows
        ends: Ints = rows.column(WINDOW_END).cast(pa.int64()).to_numpy()
        expires = np.minimum(ends, END_OF_TIME_US - self._outlives_us) + self._outlives_us
        return rows.append_column(EXPIRES_COLUMN, pa.array(expires))


class MaterializedRun:
    """One subtask's epoch of a `MaterializedOperator`. It collects the emitted rows until the end of the epoch."""

    def __init__(self, operator: MaterializedOperator, run: OperatorRun, output: KeyedState) -> None:
        self._operator, self._run, self._output = operator, run, output
        self._pieces: list[pa.Table] = []

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Pass rows to the operator. Raises OperatorFailed."""
        for output in self._run.rows(position, rows, lateness_us):
            self._pieces.append(output.rows)
            yield output

    def advance(self, firing_us: int | None) -> pa.Table:
        """Advance the operator's firing watermark. Raises OperatorFailed."""
        self._pieces.append(self._run.advance(firing_us))
        return self._pieces[-1]

    def finish(self, firing_us: int | None) -> pa.Table:
        """Finish the operator's epoch. Raises OperatorFailed."""
        self._pieces.append(self._run.finish(firing_us))
        return self._pieces[-1]

    def retractions(self) -> pa.Table:
        """Return the retractions of replaced and deleted rows, and the new rows."""
        rows = pa.concat_tables([self._operator.output_schema.empty_table(), *self._pieces])
        if rows.num_rows:
            return self._operator.replace(rows, self._output)
        nothing = self._operator.row_schema.empty_table()
        return retractions(nothing, NONE, nothing, NONE)
