"""Lineage of each kind of operator.

Tie breaks are not included: `latest`, `top` and lookups order equal rows by all their columns, which would make every
column depend on every other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milepost.jobspec.column_lineage.origins import (
    AGGREGATED,
    FILTERED,
    GROUPED,
    JOINED,
    MADE_OF,
    SORTED,
    WINDOWED,
    Origins,
    RowsLineage,
    after_step,
    union,
)
from milepost.jobspec.column_lineage.sql_lineage import condition_origins, sql_lineage
from milepost.jobspec.graph.edges import WINDOW_COLUMNS
from milepost.jobspec.graph.rules.join import LEFT_ALONE, Paired
from milepost.jobspec.job.operators.asof import AsofOperator
from milepost.jobspec.job.operators.join import JoinOperator
from milepost.jobspec.job.operators.latest import LatestOperator
from milepost.jobspec.job.operators.lookup import LookupOperator
from milepost.jobspec.job.operators.top import TopOperator
from milepost.jobspec.job.spec import (
    AggregateOperator,
    DeduplicateOperator,
    ProcessOperator,
    RowWiseSpec,
    SqlOperator,
    StatefulSpec,
    WindowOperator,
)
from milepost.language import AggregateCall

Inputs = Sequence[RowsLineage]
Times = Sequence[str | None]
"""The event time column of each input, in order; None if it has none."""


def operator_lineage(operator: RowWiseSpec | StatefulSpec, inputs: Inputs, times: Times) -> RowsLineage:
    """Return what the rows of an operator depend on."""
    match operator:
        case SqlOperator():
            return sql_lineage(operator.sql, dict(zip(operator.inputs, inputs, strict=True)))
        case AggregateOperator() | WindowOperator():
            return _aggregated(operator, inputs[0], times[0])
        case JoinOperator() | AsofOperator() | LookupOperator():
            return _joined(operator, inputs, times)
        case LatestOperator():
            return _latest(operator, inputs[0], times[0])
        case TopOperator():
            return _top(operator, inputs[0])
        case DeduplicateOperator():
            time = times[0] if operator.ttl is not None else None
            return _with_deciding(inputs[0], inputs[0].by(FILTERED, (*operator.key, time)))
        case ProcessOperator():
            keys = (rows.by(GROUPED, operator.key) for rows in inputs)
            whole = after_step(MADE_OF, union(*(rows.whole for rows in inputs)))
            return RowsLineage({}, union(*(rows.rows for rows in inputs), *keys), whole)


def late_lineage(rows: RowsLineage, time: str | None) -> RowsLineage:
    """Return the lineage of late rows: the rows of the operator's input, filtered by event time."""
    return _with_deciding(rows, rows.by(FILTERED, (time,)))


def _with_deciding(rows: RowsLineage, deciding: Origins) -> RowsLineage:
    return RowsLineage(rows.columns, union(rows.rows, deciding), rows.any_column)


def _aggregated(operator: AggregateOperator | WindowOperator, rows: RowsLineage, time: str | None) -> RowsLineage:
    columns: dict[str, Origins] = {name: rows.of(name) for name in operator.key}
    deciding = rows.by(GROUPED, operator.key)
    if isinstance(operator, WindowOperator):
        columns |= dict.fromkeys(WINDOW_COLUMNS, rows.by(MADE_OF, (time,)))
        deciding = union(deciding, rows.by(WINDOWED, (time,)))
    for name, call in operator.aggregates.items():
        columns[name] = _call(call.timed(time), operator.inputs[0], rows)
    return RowsLineage(columns, union(rows.rows, deciding))


def _call(call: AggregateCall, input_name: str, rows: RowsLineage) -> Origins:
    if call.condition is not None:
        where = after_step(FILTERED, condition_origins(call.condition, input_name, rows))
    else:
        where = rows.by(FILTERED, (call.where,))
    return union(rows.by(AGGREGATED, (call.column,)), rows.by(SORTED, (call.by,)), where)


def _joined(operator: Paired, inputs: Inputs, times: Times) -> RowsLineage:
    """Return the left columns, then the right ones without the key.

    With `how: right`, the left key and event time columns may also hold the values of an unmatched right row.
    """
    left, right = inputs
    uses_time = not isinstance(operator, LookupOperator)
    pairs = [*operator.key, *([(times[0], times[1])] if uses_time else [])]
    deciding = union(left.by(JOINED, (name for name, _ in pairs)), right.by(JOINED, (name for _, name in pairs)))
    if isinstance(operator, LookupOperator):
        deciding = union(deciding, right.by(SORTED, (name for name, _ in operator.order_by)))
    rows = union(left.rows, right.rows, deciding)
    if operator.how in LEFT_ALONE:
        return RowsLineage(left.columns, rows, left.any_column)
    if not (left.columns and right.columns):
        return RowsLineage({}, rows, union(left.whole, right.whole))
    keys, new = {name for _, name in operator.key}, {column: name for name, column in operator.renamed.items()}
    columns = dict(left.columns)
    columns |= {new.get(name, name): origins for name, origins in right.columns.items() if name not in keys}
    if operator.how == "right":
        columns |= {name: union(left.of(name), right.of(other)) for name, other in pairs if name is not None}
    return RowsLineage(columns, rows)


def _latest(operator: LatestOperator, rows: RowsLineage, time: str | None) -> RowsLineage:
    deciding = [rows.by(GROUPED, operator.key), rows.by(SORTED, operator.sequence_by)]
    if operator.delete_when is not None:
        deciding.append(after_step(FILTERED, condition_origins(operator.delete_when, operator.inputs[0], rows)))
    if operator.tombstone_ttl is not None:
        deciding.append(rows.by(FILTERED, (time,)))
    columns: Mapping[str, Origins] = rows.columns
    if operator.columns is not None:
        columns = {name: rows.of(name) for name in rows.columns if name in operator.columns} or {
            name: rows.of(name) for name in operator.columns
        }
    return RowsLineage(columns, union(rows.rows, *deciding), rows.any_column)


def _top(operator: TopOperator, rows: RowsLineage) -> RowsLineage:
    order = rows.by(SORTED, (name for name, _ in operator.order_by))
    deciding = union(rows.rows, rows.by(GROUPED, operator.key), order)
    ranked = {} if operator.rank is None else {operator.rank: union(rows.by(GROUPED, operator.key), order)}
    return RowsLineage({**rows.columns, **ranked} if rows.columns else {}, deciding, rows.any_column)
