"""Convert stored state rows to readable values: aggregate results by name, times as timestamps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from milepost.epoch import CheckpointMetadata, OperatorTable, renames
from milepost.errors import InvalidRequest
from milepost.jobmaster.compatibility.recorded_types import recorded_types
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.load import from_text
from milepost.language import AggregateCall
from milepost.operators import TOTAL_COLUMN, OperatorFailed
from milepost.operators.aggregate import AggregateOperator
from milepost.operators.aggregation import BY_COLUMN, NEGATIVE_ZEROS, ROWS_COLUMN, VALUE_COLUMN, Aggregates, timed_calls
from milepost.operators.base import WINDOW_END, WINDOW_START
from milepost.operators.window import FIRST_END, PANE_START, WindowOperator, microseconds, tumbling_bounds
from milepost.protocol.records import EXPIRES_COLUMN, IDENTITY_COLUMNS, TIMER_COLUMN, WEIGHT_COLUMN

_SHOWN_AS = {TIMER_COLUMN: "next_timer", EXPIRES_COLUMN: "expires"}
_VALUES = {VALUE_COLUMN: "value", BY_COLUMN: "by", NEGATIVE_ZEROS: "negative_zeros"}
_PANES = {PANE_START: "pane_start", FIRST_END: "first_window_end"}
_NUMBER = "rows"
_SHOWABLE_US = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The years 1 to 9999, in microseconds since 1970. A time beyond means never."""


def state_values(context: JobContext, metadata: CheckpointMetadata, table: OperatorTable, rows: pa.Table) -> pa.Table:
    """Convert rows of a state table to readable values, in the same order.

    Aggregates show their results, by the spec of the checkpoint's epoch: for `mean: avg(x)`, the stored sum
    and count of x become the column `mean`. Windows show their end, sliding windows their panes. If that spec cannot
    be read, the rows are returned as stored.

    Raises: InvalidRequest: a result does not fit its type; the next epoch with that key would be declined.
    """
    operator, calls = _aggregates(context, metadata, table.uid)
    if operator is None or VALUE_COLUMN in rows.column_names:
        shown = _with_times(rows)
        names = _VALUES | _PANES
        return shown.rename_columns([_unless_taken(names.get(name, name), name, shown) for name in shown.column_names])
    columns = {column for call in calls.values() for column in call.columns}
    types = recorded_types(table.state.schema, sorted(columns), calls.values())
    over_updates = ROWS_COLUMN in rows.column_names
    sessions = isinstance(operator, WindowOperator) and operator.window.session is not None
    schema = pa.schema(list(types.items()))
    aggregates = Aggregates(table.uid, calls, schema, over_updates=over_updates, any_order=sessions)
    try:
        results = aggregates.results(rows)
    except OperatorFailed as error:
        raise InvalidRequest(
            f"checkpoint {metadata.checkpoint_id}: {error}. Nothing was changed.",
            hint="--stored shows the state as stored",
        ) from None
    shown = rows.select(list(table.state.key))
    if isinstance(operator, WindowOperator) and operator.window.sliding is not None:
        shown = shown.rename_columns(
            [_unless_taken(_PANES.get(name, name), name, shown) for name in shown.column_names]
        )
    elif isinstance(operator, WindowOperator):
        shown = shown.append_column(WINDOW_END, _times(_ends(operator, rows)))
    for field, column in zip(aggregates.output_fields, results, strict=True):
        shown = shown.append_column(field, column)
    return shown


def _ends(operator: WindowOperator, rows: pa.Table) -> pa.ChunkedArray:
    """Return the ends of windows, in microseconds.

    A session window's end is its timer. A tumbling window's end is computed from its start.
    """
    windows = operator.window
    if windows.tumbling is None:
        return rows.column(TIMER_COLUMN)
    ends = tumbling_bounds(windows.tumbling, windows).ends(microseconds(rows, WINDOW_START))
    return pa.chunked_array([pa.array(ends)])


def shown_key(key: Sequence[str], values: pa.Table) -> list[str]:
    """Return the names of the key columns in the result of `state_values`."""
    return [name if name in values.column_names else (_VALUES | _PANES)[name] for name in key]


def _unless_taken(name: str, stored: str, rows: pa.Table) -> str:
    return name if name == stored or name not in rows.column_names else stored


def drop_total_column(rows: pa.Table) -> pa.Table:
    """Return rows without the artificial key column of a totals row."""
    return rows.drop_columns([TOTAL_COLUMN]) if TOTAL_COLUMN in rows.column_names else rows


def show_row_counts(rows: pa.Table) -> pa.Table:
    """Return multiset rows without their identity hashes, with their count as the column `rows`."""
    if WEIGHT_COLUMN not in rows.column_names:
        return rows
    count_name = _NUMBER if _NUMBER not in rows.column_names else WEIGHT_COLUMN
    shown = rows.drop_columns([name for name in IDENTITY_COLUMNS if name in rows.column_names])
    return shown.rename_columns([count_name if name == WEIGHT_COLUMN else name for name in shown.column_names])


def _aggregates(
    context: JobContext, metadata: CheckpointMetadata, uid: str
) -> tuple[AggregateOperator | WindowOperator | None, dict[str, AggregateCall]]:
    """Return the aggregating operator in the checkpoint's own spec, under this uid or a former one."""
    try:
        job = from_text(metadata.spec_text, context.job.path)
        nodes = job.graph().nodes
    except InvalidRequest:  # written for another version of the spec language
        return None, {}
    names = set(_names(context, uid))
    for operator in job.spec.operators:
        if operator.uid in names and isinstance(operator, AggregateOperator | WindowOperator):
            return operator, timed_calls(uid, operator.aggregates, nodes[operator.inputs[0]].event_time)
    return None, {}


def _names(context: JobContext, uid: str) -> Iterator[str]:
    yield uid
    yield from (former for former, now in renames(context.spec) if now == uid)


def _with_times(rows: pa.Table) -> pa.Table:
    """Return the rows with internal time columns renamed and converted to timestamps."""
    for stored, name in _SHOWN_AS.items():
        if stored in rows.column_names:
            at = rows.column_names.index(stored)
            rows = rows.set_column(at, name if name not in rows.column_names else stored, _times(rows.column(stored)))
    return rows


def _times(microseconds: pa.ChunkedArray) -> pa.Array:
    """Convert microseconds since 1970 to timestamps; null for null and for never."""
    valid = microseconds.is_valid().to_numpy()
    values = microseconds.fill_null(0).to_numpy()
    beyond = (values < _SHOWABLE_US[0]) | (values > _SHOWABLE_US[1])
    return pa.array(np.where(beyond, 0, values), pa.int64(), mask=~valid | beyond).cast(pa.timestamp("us", "UTC"))
