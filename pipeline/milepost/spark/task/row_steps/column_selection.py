"""A SELECT of unchanged columns, which Python computes: Spark would convert each row to its own form and back.

`SELECT id AS auction, price FROM bids WHERE bidder <> 3` takes two rows and two columns, and renames one:

    id  bidder  price        auction  price
    7   1       50           7        50
    8   2       70           8        70
    9   3       60
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from milepost.jobspec.job import JobSpec
from milepost.language.sql import Comparisons, branches, compile_comparisons
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
        condition: of the rows that pass; None: all of them.
        key: columns whose values a delete keeps; None: the output has no deletes.
        schema: of the output. `__weight` and `__deleted` have the meaning that `expression` gives them.
    """

    uid: str
    output: str
    input: str
    columns: Mapping[str, str]
    condition: Comparisons | None
    key: tuple[str, ...] | None
    schema: pa.Schema

    def select(self, rows: pa.Table) -> pa.Table:
        """Return the output's rows for some rows of its input, in their order."""
        deleted = _column(rows, DELETED_COLUMN, False)
        if self.condition is not None:
            deleted = pc.or_(deleted, pc.invert(self.condition.is_true(rows)))
        if self.key is None and (self.condition is not None or DELETED_COLUMN in rows.column_names):
            rows = rows.filter(pc.invert(deleted))
            deleted = pa.repeat(False, rows.num_rows)
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
    fields = [field for field in schemas[read] if field.name not in (DELETED_COLUMN, WEIGHT_COLUMN)]
    plan = first.plan([field.name for field in fields])
    if others or plan.exploded is not None or any(name not in plan.passthrough for name, _ in plan.columns):
        return None
    condition = None
    if plan.filter_sql is not None:
        condition = compile_comparisons(first.sql, {field.name: field.type for field in fields})
        if condition is None:
            return None
    key = node.key if node.deletes and not output.is_weighted and not output.is_whole else None
    return ColumnSelection(node.uid, output.name, read, plan.passthrough, condition, key, schemas[output.name])
