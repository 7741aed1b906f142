"""A materialized output: the rows that an operator has put out, kept in a table of their own to be taken back.

What an aggregate gave out is a function of its state when the epoch began. What windows gave out is none, because how
far the subtask of each had fired is not in it; nor is what a user's class gave out, which yields what it likes. So
where operators read their updates, their rows are kept as they were put out::

    output of the epoch   the table before   taken back     new
    a  3                  a  2               a  2           a  3
    b  1                                                    b  1
    c  deleted            c  5               c  5
    d  4                  d  4
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from milepost.jobspec.graph import DELETED_COLUMN, OUTPUT_TABLE, WINDOW_END
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
    """Implements `StatefulOperator` for another one whose updates operators read.

    A row is known by the output key, whose columns are as keys are compared: one zero and one NaN.
    """

    def __init__(self, operator: StatefulOperator, outlives_us: int | None = None) -> None:
        """Args:
        outlives_us: for how long after its `window_end` a row may be replaced; None: for ever.
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
        """Return the rows that are there of those in the table: of windows that were forgotten none."""
        return output.select(self.row_schema.names).cast(self.row_schema)

    def replace(self, rows: pa.Table, output: KeyedState) -> pa.Table:
        """Put an epoch's rows in the table; return what is taken back, and what is new.

        Args:
            rows: of the output schema, in the order in which they were put out: the last one of a key counts.
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
        """Return a column of a kept row: one that is added later begins null."""
        return field.remove_metadata() if field.name in self.output_key else field.with_metadata({BEGINS_NULL: "1"})

    def _with_expiry(self, rows: pa.Table) -> pa.Table:
        if self._outlives_us is None:
            return rows
        ends: Ints = rows.column(WINDOW_END).cast(pa.int64()).to_numpy()
        expires = np.minimum(ends, END_OF_TIME_US - self._outlives_us) + self._outlives_us
        return rows.append_column(EXPIRES_COLUMN, pa.array(expires))


class MaterializedRun:
    """One subtask's epoch of a `MaterializedOperator`: what the operator puts out is looked at in the end."""

    def __init__(self, operator: MaterializedOperator, run: OperatorRun, output: KeyedState) -> None:
        self._operator, self._run, self._output = operator, run, output
        self._pieces: list[pa.Table] = []

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Have the operator take rows up. Raises OperatorFailed."""
        for output in self._run.rows(position, rows, lateness_us):
            self._pieces.append(output.rows)
            yield output

    def advance(self, firing_us: int | None) -> pa.Table:
        """Have the operator fire. Raises OperatorFailed."""
        self._pieces.append(self._run.advance(firing_us))
        return self._pieces[-1]

    def finish(self, firing_us: int | None) -> pa.Table:
        """Have the operator end its epoch. Raises OperatorFailed."""
        self._pieces.append(self._run.finish(firing_us))
        return self._pieces[-1]

    def retractions(self) -> pa.Table:
        """Return the rows that others replace or delete, as they were put out, taken back, and the new ones."""
        rows = pa.concat_tables([self._operator.output_schema.empty_table(), *self._pieces])
        if rows.num_rows:
            return self._operator.replace(rows, self._output)
        nothing = self._operator.row_schema.empty_table()
        return retractions(nothing, NONE, nothing, NONE)
