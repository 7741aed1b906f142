"""Delete rows of an output, which carry only key columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from milepost.operators.base.edges import DELETED_COLUMN

DELETED_FIELD = pa.field(DELETED_COLUMN, pa.bool_(), nullable=False)


def deletes_of(deleted_rows: pa.Table, key: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return a delete row for each row of `deleted_rows`: its key columns, and null in every other column."""
    count = deleted_rows.num_rows
    columns = [
        deleted_rows.column(field.name) if field.name in key else pa.nulls(count, field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)


def with_deletes(rows: pa.Table, deleted_rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return `rows`, then deletes of `deleted_rows`, with a column that distinguishes them.

    >>> with_deletes(pa.table({"k": [1], "n": [5]}), pa.table({"k": [2], "n": [7]}), ["k"]).to_pylist()[1]
    {'k': 2, 'n': None, '__deleted': True}
    """
    deleted = np.repeat([False, True], [rows.num_rows, deleted_rows.num_rows])
    both = pa.concat_tables([rows, deletes_of(deleted_rows, key, rows.schema)])
    return both.append_column(DELETED_FIELD, pa.array(deleted))
