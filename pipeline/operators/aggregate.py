"""`kind: aggregate`: running aggregates per key; each epoch emits the keys that changed, with their new values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from pipeline.config.aggregates import AggregateCall
from pipeline.operators.aggregates import Aggregates
from pipeline.operators.columns import check_key, distinct_columns, key_columns, plain_schema
from pipeline.operators.contract import KeyedState, OperatorOutput, OutputKind, Watermarks


class AggregateByKey:
    """Aggregates over all rows of a key so far. Nothing is ever late; a null key is a group of its own."""

    output_kind = OutputKind.UPDATES

    def __init__(
        self, uid: str, key: Sequence[str], calls: Mapping[str, AggregateCall], input_schema: pa.Schema
    ) -> None:
        check_key(uid, key, input_schema)
        self._input_schema = plain_schema(input_schema)
        self._aggregates = Aggregates(uid, calls, self._input_schema)
        self.uid = uid
        self.key = self.routing_key = self.output_key = tuple(key)
        keys = [self._input_schema.field(name) for name in key]
        self.state_schema = distinct_columns(uid, [*keys, *self._aggregates.state_fields])
        self.output_schema = distinct_columns(uid, [*keys, *self._aggregates.output_fields])

    def process(self, rows: pa.Table, state: KeyedState, watermarks: Watermarks) -> OperatorOutput:
        """Emit the changed keys in the order of their first row in this epoch. Raises OperatorFailed on overflow."""
        late = self._input_schema.empty_table()
        if not rows.num_rows:
            return OperatorOutput(self.output_schema.empty_table(), late)
        rows = rows.select(self._input_schema.names).cast(self._input_schema)
        changed = self._aggregates.fold(key_columns(rows, self.key), rows, state)
        state.upsert(changed)
        columns = [*changed.select(list(self.key)).columns, *self._aggregates.results(changed)]
        return OperatorOutput(pa.table(columns, schema=self.output_schema), late)
