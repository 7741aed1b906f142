"""Recorded types are those of an operator's input columns, as far as its recorded state shows them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from milepost.jobspec.values.aggregates import EXACT_DIGITS, AggregateCall
from milepost.operators.contract import TYPE_OF
from milepost.protocol.records.state_columns import SCALE


def recorded_types(
    recorded: pa.Schema, columns: Iterable[str], calls: Iterable[AggregateCall]
) -> dict[str, pa.DataType]:
    """Return the types that input columns had, as far as recorded state shows them: a flag or filter is of bool."""
    calls = [*calls]
    flags = {call.where for call in calls} | {call.column for call in calls if call.function in ("any", "every")}
    return {name: pa.bool_() if name in flags else _recorded_type(recorded, name) for name in columns}


def _recorded_type(recorded: pa.Schema, column: str) -> pa.DataType:
    """Return the type that state tells: of values of the column as they are, else of what they were made."""
    named = [recorded.field(name) for name in (column, f"min({column})", f"max({column})") if name in recorded.names]
    named += [field for field in recorded if (field.metadata or {}).get(TYPE_OF) == column.encode()]
    named.sort(key=lambda field: SCALE in (field.metadata or {}))
    named += [recorded.field(name) for name in (f"sum({column})", f"sum({column}).low") if name in recorded.names]
    if not named:
        return pa.int64()
    best = named[0]
    scale = int((best.metadata or {}).get(SCALE, 0))
    digits = EXACT_DIGITS if best.name.startswith("squares(") else 38
    return pa.decimal128(digits, scale) if scale else best.type
