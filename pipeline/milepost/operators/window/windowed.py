"""Input, aggregates and output that all window operators share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from milepost.errors import InvalidRequest
from milepost.language import AggregateCall
from milepost.operators.aggregation.aggregates import Aggregates
from milepost.operators.aggregation.totals import state_key, state_key_fields
from milepost.operators.base.edges import WINDOW_COLUMNS, WINDOW_START
from milepost.operators.contract import Ints, OperatorFailed, OperatorInput
from milepost.operators.rows.columns import (
    UTC_MICROSECONDS,
    check_event_time,
    check_key,
    distinct_columns,
    plain_schema,
)
from milepost.protocol.records import TIMER_COLUMN


@dataclass(frozen=True, slots=True)
class Emission:
    """When windows are emitted.

    Attributes:
        lateness_us: how long after their end they accept rows and are emitted again.
        early: whether every epoch that brings a window rows emits it, even before its end.
    """

    lateness_us: int = 0
    early: bool = False

    @property
    def updates(self) -> bool:
        """Whether a later result may replace a window's earlier one."""
        return self.early or self.lateness_us > 0

    def output_key(self, key: Sequence[str]) -> tuple[str, ...]:
        """Return what identifies a row of the output of windows of a key; () where rows are final."""
        return (*key, *WINDOW_COLUMNS) if self.updates else ()


def microseconds(rows: pa.Table, column: str) -> Ints:
    """Return the moments of a column without nulls, in microseconds since the epoch."""
    return rows.column(column).cast(pa.int64()).to_numpy()


def exclude_fired(windows: pa.Table, before_us: int | None, now_us: int | None) -> pa.Table:
    """Return the windows that a firing from `before_us` to `now_us` has not emitted.

    A window's timer is its end. The firing emits the ends after `before_us`, up to and including `now_us`:

    >>> exclude_fired(pa.table({TIMER_COLUMN: [10, 20, 30]}), 10, 20).column(TIMER_COLUMN).to_pylist()
    [10, 30]
    """
    if now_us is None or now_us == before_us:
        return windows
    ends = windows.column(TIMER_COLUMN).to_numpy()
    fired = (ends <= now_us) if before_us is None else (ends <= now_us) & (ends > before_us)
    return windows.filter(pa.array(~fired))


class WindowedRows:
    """The input and the output of a window operator.

    Attributes:
        key: columns of the rows that windows are of. state_key, key_fields: those of state: without a key, that of
            totals.
        event_time: of its rows. input_schema: of them, plain. aggregates: of the rows in a window.
        output_schema: key, window_start, window_end, then the aggregates.
    """

    def __init__(
        self,
        uid: str,
        key: Sequence[str],
        calls: Mapping[str, AggregateCall],
        input_: OperatorInput,
        *,
        any_order: bool = False,
    ) -> None:
        """Args:
        any_order: of the aggregates.
        """
        check_key(uid, key, input_.schema)
        taken = {*WINDOW_COLUMNS} & {*key, *calls}
        if taken:
            raise InvalidRequest(
                f"operator {uid!r}: {sorted(taken)[0]!r} is a column that every window adds. Nothing was changed.",
                hint="Rename the key or aggregate.",
            )
        self.uid = uid
        self.key = tuple(key)
        self.event_time = check_event_time(uid, input_, "a window")
        self.input_schema = plain_schema(input_.schema)
        self.aggregates = Aggregates(uid, calls, self.input_schema, any_order=any_order)
        self.state_key, self.key_fields = state_key(key), state_key_fields(key, self.input_schema)
        bounds = [pa.field(name, UTC_MICROSECONDS) for name in WINDOW_COLUMNS]
        self.output_schema = distinct_columns(
            uid, [*self.key_fields[: len(key)], *bounds, *self.aggregates.output_fields]
        )

    def plain(self, rows: pa.Table) -> pa.Table:
        """Return input rows with the columns and types that the operator knows."""
        return rows.select(self.input_schema.names).cast(self.input_schema)

    def results(self, windows: pa.Table) -> pa.Table:
        """Return what windows give out, by window and key. Raises OperatorFailed on overflow.

        Args:
            windows: key, window_start, accumulators, and the end of each as its timer.
        """
        if not windows.num_rows:
            return self.output_schema.empty_table()
        windows = windows.sort_by([(WINDOW_START, "ascending"), *((name, "ascending") for name in self.key)])
        ends = windows.column(TIMER_COLUMN).cast(UTC_MICROSECONDS)
        columns = [*windows.select([*self.key, WINDOW_START]).columns, ends, *self.aggregates.results(windows)]
        return pa.table(columns, schema=self.output_schema)

    def refuse_unbounded(self, beyond: Ints) -> None:
        """Raises OperatorFailed: a window would begin or end outside the range of timestamps."""
        if len(beyond):
            raise OperatorFailed(
                self.uid,
                f"the window of event time {int(beyond[0])} us since 1970 ({self.event_time.column}) has no bounds "
                f"that a timestamp can hold, nor have those of {len(beyond) - 1} others; filter such rows before it",
            )
