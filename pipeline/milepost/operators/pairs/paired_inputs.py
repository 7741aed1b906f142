"""Keys and event times of a join's two inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from milepost.operators.base.two_inputs import SIDES
from milepost.operators.contract import Ints, OperatorInput
from milepost.operators.pairs.join_columns import LEFT, RIGHT, common_types
from milepost.operators.rows.columns import (
    EventTime,
    check_event_time,
    check_key,
    plain_schema,
    with_plain_keys,
    without_nulls,
)
from milepost.protocol.exchange import NullSpreadingKey


@dataclass(frozen=True, slots=True)
class ClassifiedRows:
    """The rows of a piece: late, without a key, and ready to join.

    Attributes:
        late: as they came. without_key: on time, with a null in their key. rows, times: all others.
    """

    late: pa.Table
    without_key: pa.Table
    rows: pa.Table
    times: Ints


@dataclass(frozen=True, slots=True)
class PairedInputs:
    """The left and the right input of an operator, in this order.

    Attributes:
        schemas: of their rows. routing_keys, event_times: of them.
        key_types: of each pair of key columns the type that holds both exactly.
    """

    schemas: tuple[pa.Schema, ...]
    routing_keys: tuple[tuple[str, ...], ...]
    event_times: tuple[EventTime, ...]
    key_types: tuple[pa.DataType, ...]

    @classmethod
    def of(cls, uid: str, what: str, keys: Sequence[tuple[str, str]], inputs: Sequence[OperatorInput]) -> PairedInputs:
        """Return the inputs of an operator. Raises InvalidRequest: a key or an event time does not work.

        Args:
            what: the operator is, as messages say it. keys: pairs of a left and a right column.
        """
        schemas = tuple(plain_schema(one.schema) for one in inputs)
        routing_keys = tuple(NullSpreadingKey(pair[side] for pair in keys) for side in (LEFT, RIGHT))
        for key, schema in zip(routing_keys, schemas, strict=True):
            check_key(uid, key, schema)
        event_times = tuple(
            check_event_time(uid, OperatorInput(schema, one.event_time, one.shift_us), f"the {name} input of {what}")
            for name, schema, one in zip(SIDES, schemas, inputs, strict=True)
        )
        return cls(schemas, routing_keys, event_times, tuple(common_types(uid, keys, schemas)))

    def stored(self, side: int) -> pa.Schema:
        """Return the columns of a side, with its key in the types that both sides store."""
        types = dict(zip(self.routing_keys[side], self.key_types, strict=True))
        return pa.schema([pa.field(field.name, types.get(field.name, field.type)) for field in self.schemas[side]])

    def take(self, side: int, rows: pa.Table, lateness_us: int | None) -> ClassifiedRows:
        """Divide the rows of a side; keys have one zero and one NaN. Raises OperatorFailed: an event time is null."""
        schema, key = self.schemas[side], self.routing_keys[side]
        rows = rows.select(schema.names).cast(schema)
        times = self.event_times[side].of(rows)
        late = schema.empty_table()
        if lateness_us is not None:
            on_time = times >= lateness_us
            late = rows.filter(pa.array(~on_time))
            rows, times = rows.filter(pa.array(on_time)), times[on_time]
        rows = with_plain_keys(rows, key)
        there = without_nulls(rows.select(list(key)))
        if bool(there.all()):
            return ClassifiedRows(late, schema.empty_table(), rows, times)
        return ClassifiedRows(late, rows.filter(pa.array(~there)), rows.filter(pa.array(there)), times[there])
