"""Derive the types of an operator's input columns from its recorded state."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from milepost.language import EXACT_DIGITS, AggregateCall
from milepost.operators import TYPE_OF
from milepost.protocol.records import SCALE

_SQUARES = "squares("
"""Prefix of fields that only columns of few digits have: of these columns, variances are exact."""


def recorded_types(
    recorded: pa.Schema, columns: Iterable[str], calls: Iterable[AggregateCall]
) -> dict[str, pa.DataType]:
    """Return the types that input columns had, as far as recorded state shows them.

    Columns of `where`, `any` and `every` are boolean. A column that no state field was computed from counts as int64.
    """
    calls = [*calls]
    flags = {call.where for call in calls} | {call.column for call in calls if call.function in ("any", "every")}
    return {name: pa.bool_() if name in flags else _recorded_type(recorded, name) for name in columns}


def _recorded_type(recorded: pa.Schema, column: str) -> pa.DataType:
    """Return the type of a column from the state fields computed from it, the most reliable field first.

    state has min(price): decimal(10, 2)         price: decimal(10, 2)
    state has only sum(price): decimal(38, 2)    price: decimal(38, 2)
    state counts NaN of sums: sum(price).nan     price: double
    state has neither                            price: int64
    """
    candidates = [
        recorded.field(name) for name in (column, f"min({column})", f"max({column})") if name in recorded.names
    ]
    candidates += [field for field in recorded if (field.metadata or {}).get(TYPE_OF) == column.encode()]
    candidates.sort(key=lambda field: (SCALE in (field.metadata or {}), not field.name.startswith(_SQUARES)))
    candidates += [recorded.field(name) for name in (f"sum({column})", f"sum({column}).low") if name in recorded.names]
    if not candidates:
        return pa.int64()
    best = candidates[0]
    scale = int((best.metadata or {}).get(SCALE, 0))
    digits = EXACT_DIGITS if best.name.startswith(_SQUARES) else 38
    if scale:
        return pa.decimal128(digits, scale)
    counts_nan = TYPE_OF in (best.metadata or {}) and best.name.endswith(").nan")
    return pa.float64() if counts_nan else best.type
