"""Convert bad records into dead letters: rows that a sink can write."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from milepost.jobspec.graph import bad_columns
from milepost.jobspec.job import SourceSpec
from milepost.language import arrow_schema
from milepost.sources.contract import BadMessage, BadRecord


def dead_letter_schema(source: SourceSpec) -> pa.Schema:
    """Return the schema of a source's `.bad` output."""
    return arrow_schema({name: type_ for name, type_ in bad_columns(source).items() if type_ is not None})


def dead_letters(records: Iterable[BadRecord], schema: pa.Schema) -> pa.RecordBatch:
    """Return bad records as rows of a source's `.bad` output, in the given order."""
    rows = [
        {
            "object": bad.key,
            "line": bad.line if bad.row is None else bad.row,
            "column": bad.column,
            "value": bad.value,
            "reason": bad.clause + (f" ({bad.engine_message})" if bad.engine_message else ""),
            "raw": bad.raw,
            **(bad.place if isinstance(bad, BadMessage) else {}),
        }
        for bad in records
    ]
    return pa.RecordBatch.from_pylist(rows, schema)
