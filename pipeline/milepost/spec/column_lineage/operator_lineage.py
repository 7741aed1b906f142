"""Operator origins: what the rows of each kind of operator depend on, by the rules that the operators keep.

Left out are the ties: of rows that an order does not tell apart `latest`, `top` and lookups take the greatest or first
in all their columns, which would make every column depend on every other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milepost.spec.column_lineage.origins import (
    AGGREGATED,
    FILTERED,
    GROUPED,
    JOINED,
    MADE_OF,
    SORTED,
    WINDOWED,
    Origins,
    RowsLineage,
    after,
    together,
)
from milepost.spec.column_lineage.sql_lineage import condition_origins, sql_lineage
from milepost.spec.graph.edges import WINDOW_COLUMNS
from milepost.spec.graph.rules.join import LEFT_ALONE, Paired
from milepost.spec.job.operators.asof import AsofOperator
from milepost.spec.job.operators.join import JoinOperator
from milepost.spec.job.operators.latest import LatestOperator
from milepost.spec.job.operators.lookup import LookupOperator
from milepost.spec.job.operators.top import TopOperator
from milepost.spec.job.spec import (
    AggregateOperator,
    DeduplicateOperator,
    ProcessOperator,
    RowWiseSpec,
    SqlOperator,
    StatefulSpec,
    WindowOperator,
)
from milepost.spec.values.aggregates import AggregateCall

Inputs = Sequence[RowsLineage]
Times = Sequence[str | None]
"""The event time column of each input, in order; None: it has none."""


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
            return _with(inputs[0], inputs[0].by(FILTERED, (*operator.key, time)))
        case ProcessOperator():
            keys = (rows.by(GROUPED, operator.key) for rows in inputs)
            whole = after(MADE_OF, together(*(rows.whole for rows in inputs)))
            return RowsLineage({}, together(*(rows.rows for rows in inputs), *keys), whole)


def late_lineage(rows: RowsLineage, time: str | None) -> RowsLineage:
    """Return what late rows depend on: they are those of the operator's input, by their event time."""
    return _with(rows, rows.by(FILTERED, (time,)))


def _with(rows: RowsLineage, decide: Origins) -> RowsLineage:
    return RowsLineage(rows.columns, together(rows.rows, decide), rows.any_column)


def _aggregated(operator: AggregateOperator | WindowOperator, rows: RowsLineage, time: str | None) -> RowsLineage:
    columns: dict[str, Origins] = {name: rows.of(name) for name in operator.key}
    decide = rows.by(GROUPED, operator.key)
    if isinstance(operator, WindowOperator):
        columns |= dict.fromkeys(WINDOW_COLUMNS, rows.by(MADE_OF, (time,)))
        decide = together(decide, rows.by(WINDOWED, (time,)))
    for name, call in operator.aggregates.items():
        columns[name] = _call(call.timed(time), operator.inputs[0], rows)
    return RowsLineage(columns, together(rows.rows, decide))


def _call(call: AggregateCall, input_name: str, rows: RowsLineage) -> Origins:
    if call.condition is not None:
        where = after(FILTERED, condition_origins(call.condition, input_name, rows))
    else:
        where = rows.by(FILTERED, (call.where,))
    return together(rows.by(AGGREGATED, (call.column,)), rows.by(SORTED, (call.by,)), where)


def _joined(operator: Paired, inputs: Inputs, times: Times) -> RowsLineage:
    """Return the left columns, then the right ones without their key; of a right row alone its key and time too."""
    left, right = inputs
    timed = not isinstance(operator, LookupOperator)
    pairs = [*operator.key, *([(times[0], times[1])] if timed else [])]
    decide = together(left.by(JOINED, (one for one, _ in pairs)), right.by(JOINED, (one for _, one in pairs)))
    if isinstance(operator, LookupOperator):
        decide = together(decide, right.by(SORTED, (name for name, _ in operator.order_by)))
    rows = together(left.rows, right.rows, decide)
    if operator.how in LEFT_ALONE:
        return RowsLineage(left.columns, rows, left.any_column)
    if not (left.columns and right.columns):
        return RowsLineage({}, rows, together(left.whole, right.whole))
    keys, new = {one for _, one in operator.key}, {column: name for name, column in operator.renamed.items()}
    columns = dict(left.columns) | {new.get(name, name): of for name, of in right.columns.items() if name not in keys}
    if operator.how == "right":
        columns |= {one: together(left.of(one), right.of(other)) for one, other in pairs if one is not None}
    return RowsLineage(columns, rows)


def _latest(operator: LatestOperator, rows: RowsLineage, time: str | None) -> RowsLineage:
    decide = [rows.by(GROUPED, operator.key), rows.by(SORTED, operator.sequence_by)]
    if operator.delete_when is not None:
        decide.append(after(FILTERED, condition_origins(operator.delete_when, operator.inputs[0], rows)))
    if operator.tombstone_ttl is not None:
        decide.append(rows.by(FILTERED, (time,)))
    kept: Mapping[str, Origins] = rows.columns
    if operator.columns is not None:
        kept = {name: rows.of(name) for name in rows.columns if name in operator.columns} or {
            name: rows.of(name) for name in operator.columns
        }
    return RowsLineage(kept, together(rows.rows, *decide), rows.any_column)


def _top(operator: TopOperator, rows: RowsLineage) -> RowsLineage:
    order = rows.by(SORTED, (name for name, _ in operator.order_by))
    decide = together(rows.rows, rows.by(GROUPED, operator.key), order)
    ranked = {} if operator.rank is None else {operator.rank: together(rows.by(GROUPED, operator.key), order)}
    return RowsLineage({**rows.columns, **ranked} if rows.columns else {}, decide, rows.any_column)
