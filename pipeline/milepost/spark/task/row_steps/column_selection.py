"""A SELECT of unchanged columns, which Python computes: Spark would convert each row to its own form and back.

`SELECT id AS auction, price FROM bids` over these rows takes two columns and renames one:

    id  bidder  price        auction  price
    7   1       50           7        50
    8   2       70           8        70
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from milepost.jobspec.job import JobSpec
from milepost.language.sql import branches
from milepost.operators.base import DELETED_COLUMN
from milepost.operators.sql import SelectSpec
from milepost.protocol.records import WEIGHT_COLUMN
from milepost.spark.task.outputs import SqlOutput


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """An output of a SELECT of unchanged columns.

    Attributes:
        uid: operator.
        output: name of the output. input: the output that it reads.
        columns: column of the output -> column of the input.
        key: columns whose values a delete keeps; None: the output has no deletes.
        schema: of the output. `__weight` and `__deleted` have the meaning that `expression` gives them.
    """

    uid: str
    output: str
    input: str
    columns: Mapping[str, str]
    key: tuple[str, ...] | None
    schema: pa.Schema

    def select(self, rows: pa.Table) -> pa.Table:
        """Return the output's rows for some rows of its input, in their order."""
        if self.key is None and DELETED_COLUMN in rows.column_names:
            rows = rows.filter(pc.invert(rows.column(DELETED_COLUMN)))
        deleted = _column(rows, DELETED_COLUMN, False)
        internal = {WEIGHT_COLUMN: _column(rows, WEIGHT_COLUMN, 1), DELETED_COLUMN: deleted}
        columns = [
            internal[name] if name in internal else self._values(rows, name, deleted) for name in self.schema.names
        ]
        return pa.table(columns, names=self.schema.names).cast(self.schema)

    def _values(self, rows: pa.Table, name: str, deleted: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
        values = rows.column(self.columns[name])
        if self.key is None or name in self.key:
            return values
        return pc.if_else(deleted, pa.scalar(None, values.type), values)


def _column(rows: pa.Table, name: str, otherwise: int | bool) -> pa.Array | pa.ChunkedArray:
    """Return a column, or one value for all rows if there is none."""
    return rows.column(name) if name in rows.column_names else pa.repeat(otherwise, rows.num_rows)


def column_selection(spec: JobSpec, output: SqlOutput, schemas: Mapping[str, pa.Schema]) -> ColumnSelection | None:
    """Return how Python computes an output of SQL; None if Spark has to.

    Args:
        schemas: of the output, and of the outputs that it reads.
    """
    node, operator = output.node, spec.operator(output.node.uid)
    if not isinstance(operator, SelectSpec):
        return None  # marks of an operator's conditions
    first, *others = branches(operator.query, operator.inputs)
    read = output.inputs[first.input]
    plan = first.plan([name for name in schemas[read].names if name not in (DELETED_COLUMN, WEIGHT_COLUMN)])
    if others or plan.filter_sql is not None or plan.exploded is not None:
        return None
    if any(name not in plan.passthrough for name, _ in plan.columns):
        return None
    key = node.key if node.deletes and not output.is_weighted and not output.is_whole else None
    return ColumnSelection(node.uid, output.name, read, plan.passthrough, key, schemas[output.name])
