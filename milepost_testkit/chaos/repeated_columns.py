"""Add columns to an aggregate later, each a copy of another one under a new name."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from milepost.jobspec.job.spec import JobSpec

AGAIN = "again_"
"""What the name of such a column begins with; the rest is the other's."""


def repeated_columns(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield (operator uid, column) for each such column."""
    for one in spec.operators:
        for name in getattr(one, "aggregates", ()):
            if name.startswith(AGAIN):
                yield one.uid, name


def by_the_law(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows emitted before such a column was added, with the column's values."""
    missing = _missing(rows, schema)
    for name in missing:
        rows = rows.append_column(schema.field(name), rows[name.removeprefix(AGAIN)])
    return rows.select(schema.names) if missing else rows


def as_tables_show(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows emitted before such a column was added, as a table shows them: with nulls."""
    missing = _missing(rows, schema)
    for name in missing:
        rows = rows.append_column(schema.field(name), pa.nulls(len(rows), schema.field(name).type))
    return rows.select(schema.names) if missing else rows


def _missing(rows: pa.Table, schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if name.startswith(AGAIN) and name not in rows.column_names]
