"""Convert bad records into dead letters: rows that a sink can write."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from milepost.jobspec.graph import BAD_COLUMNS
from milepost.language import to_arrow
from milepost.sources.contract import BadRecord

SCHEMA = pa.schema([(name, to_arrow(type_)) for name, type_ in BAD_COLUMNS.items() if type_ is not None])


def dead_letters(records: Iterable[BadRecord]) -> pa.RecordBatch:
    """Return bad records as rows of `SCHEMA`, in the given order."""
    rows = [
        {
            "object": bad.key,
            "line": bad.line if bad.row is None else bad.row,
            "column": bad.column,
            "value": bad.value,
            "reason": bad.clause + (f" ({bad.engine_message})" if bad.engine_message else ""),
            "raw": bad.raw,
        }
        for bad in records
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)
