"""`kind: deduplicate`: emit the first row of each key in plan order.

Later rows of the key are dropped while the key is in state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.language.times import in_us
from milepost.operators.contract import (
    ONLY_TABLE,
    BuildOptions,
    CheckpointListener,
    Combiner,
    KeyedState,
    OperatorInput,
    OperatorOutput,
    OutputKind,
    StatefulOperator,
    only_table,
)
from milepost.operators.deduplicate.spec import DeduplicateOperator
from milepost.operators.rows.columns import (
    check_event_time,
    check_key,
    key_columns,
    plain_schema,
)
from milepost.protocol.exchange import END_OF_TIME_US
from milepost.protocol.records import EXPIRES_COLUMN


def build(spec: DeduplicateOperator, inputs: Sequence[OperatorInput], options: BuildOptions) -> StatefulOperator:
    """Return the operator of a spec. Raises InvalidRequest."""
    (input_,) = inputs
    return DeduplicateByKey(spec.uid, spec.key, spec.ttl, input_)


class DeduplicateByKey:
    """Emits a row if and only if its key is not in state.

    With a ttl, a row is late if its event time < lateness watermark - ttl. A key stays in state while a row with the
    event time of its first row would not be late. A repeated row is therefore dropped or late, never emitted twice.
    Without a ttl a key stays in state permanently. With a ttl of 10:

        row         lateness watermark
        a, time 5   None                 emitted; a expires at 16
        a, time 5   15                   5 >= 15 - 10: on time, and dropped because 16 > 15
        a, time 5   16                   5 < 16 - 10: late; a has expired
        a, time 7   16                   7 >= 16 - 10: on time, and emitted again
    """

    output_kind = OutputKind.APPEND
    combiner: Combiner | None = None
    listener: CheckpointListener | None = None
    output_key: tuple[str, ...] = ()

    def __init__(self, uid: str, key: Sequence[str], ttl: timedelta | None, input_: OperatorInput) -> None:
        check_key(uid, key, input_.schema)
        self._ttl_us = None if ttl is None else in_us(ttl)
        self._event_time = None if ttl is None else check_event_time(uid, input_, "`ttl`")
        self._input_schema = plain_schema(input_.schema)
        self.uid = uid
        self.key = self.routing_key = tuple(key)
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.routing_key,)
        fields = [self._input_schema.field(name) for name in key]
        if ttl is not None:
            fields.append(pa.field(EXPIRES_COLUMN, pa.int64()))
        self.state_schema = pa.schema(fields)
        self.tables = only_table(self.key, self.routing_key, self.state_schema)
        self.output_schema = self._input_schema

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> DeduplicateRun:
        """Start one subtask's epoch."""
        return DeduplicateRun(self, tables[ONLY_TABLE])

    def first_rows(self, rows: pa.Table, lateness_us: int | None, state: KeyedState) -> OperatorOutput:
        """Emit the first rows of new keys, in plan order, and store the keys."""
        late = self._input_schema.empty_table()
        if not rows.num_rows:
            return OperatorOutput(late, late)
        rows = rows.select(self._input_schema.names).cast(self._input_schema)
        expires: np.ndarray | None = None
        if self._ttl_us is not None and self._event_time is not None:
            times = self._event_time.of(rows)
            if lateness_us is not None:
                on_time = times >= lateness_us - self._ttl_us
                late = rows.filter(pa.array(~on_time))
                rows, times = rows.filter(pa.array(on_time)), times[on_time]
            # The first watermark at which this event time is late: the key outlives every on-time repeat.
            # An expiry past the end of time means never.
            outlives = min(self._ttl_us + 1, END_OF_TIME_US)
            expires = np.where(times > END_OF_TIME_US - outlives, END_OF_TIME_US, times + outlives)
        return OperatorOutput(self._unknown(rows, expires, lateness_us, state), late)

    def _unknown(
        self, rows: pa.Table, expires: np.ndarray | None, lateness_us: int | None, state: KeyedState
    ) -> pa.Table:
        if not rows.num_rows:
            return rows
        occurring = state.group(key_columns(rows, self.key))
        stored, known = occurring.find()
        if expires is not None and lateness_us is not None:
            # The firing watermark may lag while rows are in flight. Expiry depends on the lateness watermark only.
            remembered_until = pc.fill_null(stored.column(EXPIRES_COLUMN), lateness_us).to_numpy()
            known = known & (remembered_until > lateness_us)
        first = occurring.first[~known]
        remembered = occurring.keys.filter(pa.array(~known))
        if expires is not None:
            remembered = remembered.append_column(EXPIRES_COLUMN, pa.array(expires[first]))
        occurring.put(remembered, ~known)
        return rows.take(pa.array(np.sort(first)))


class DeduplicateRun:
    """One subtask's epoch of a `DeduplicateByKey`. Rows are emitted immediately, and nothing fires."""

    def __init__(self, operator: DeduplicateByKey, state: KeyedState) -> None:
        self._operator = operator
        self._state = state

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Emit the first rows of new keys, in plan order. Raises OperatorFailed."""
        yield self._operator.first_rows(rows, lateness_us, self._state)

    def advance(self, firing_us: int | None) -> pa.Table:
        """Emit nothing: expiry depends on the lateness watermark."""
        return self._operator.output_schema.empty_table()

    def finish(self, firing_us: int | None) -> pa.Table:
        """Emit nothing."""
        return self._operator.output_schema.empty_table()
