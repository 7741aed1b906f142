"""Deletes: rows of an output that say that a row is gone, by its key columns alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from milepost.jobspec.graph.edges import DELETED_COLUMN

DELETED_FIELD = pa.field(DELETED_COLUMN, pa.bool_(), nullable=False)


def deletes_of(gone: pa.Table, key: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return rows of a schema that have the key columns of other rows, and nulls beside them."""
    count = gone.num_rows
    columns = [gone.column(field.name) if field.name in key else pa.nulls(count, field.type) for field in schema]
    return pa.table(columns, schema=schema)


def with_deletes(rows: pa.Table, gone: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return rows, then deletes of those that are gone, each with which of the two it is.

    >>> with_deletes(pa.table({"k": [1], "n": [5]}), pa.table({"k": [2], "n": [7]}), ["k"]).to_pylist()[1]
    {'k': 2, 'n': None, '__deleted': True}
    """
    deleted = np.repeat([False, True], [rows.num_rows, gone.num_rows])
    both = pa.concat_tables([rows, deletes_of(gone, key, rows.schema)])
    return both.append_column(DELETED_FIELD, pa.array(deleted))
