"""Select, rename and filter columns in Python, without converting rows for Spark.

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
        condition: only rows for which it is true pass; None: all rows.
        key: columns that a delete keeps; None: the output has no deletes.
        schema: schema of the output, with `__weight` and `__deleted` as in `sql_expression.expression`.
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


def _column(rows: pa.Table, name: str, default: int | bool) -> pa.Array | pa.ChunkedArray:
    """Return a column of the rows, or a constant column if they have no such column."""
    return rows.column(name) if name in rows.column_names else pa.repeat(default, rows.num_rows)


def column_selection(spec: JobSpec, output: SqlOutput, schemas: Mapping[str, pa.Schema]) -> ColumnSelection | None:
    """Return the selection that computes a SQL output in Python; None if Spark must compute it.

    Args:
        schemas: of the output, and of the outputs that it reads.
    """
    node, operator = output.node, spec.operator(output.node.uid)
    if not isinstance(operator, SelectSpec):
        return None  # condition marks, which Spark evaluates
    first, *others = branches(operator.query, operator.inputs)
    source = output.inputs[first.input]
    fields = [field for field in schemas[source] if field.name not in (DELETED_COLUMN, WEIGHT_COLUMN)]
    plan = first.plan([field.name for field in fields])
    if others or plan.exploded is not None or any(name not in plan.passthrough for name, _ in plan.columns):
        return None
    condition = None
    if plan.filter_sql is not None:
        condition = compile_comparisons(first.sql, {field.name: field.type for field in fields})
        if condition is None:
            return None
    key = node.key if node.deletes and not output.is_weighted and not output.is_whole else None
    return ColumnSelection(node.uid, output.name, source, plan.passthrough, condition, key, schemas[output.name])
