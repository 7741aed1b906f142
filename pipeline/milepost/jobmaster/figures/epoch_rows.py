"""Compact rows of epochs, for charts and verdicts over thousands of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from milepost.errors import StateCorrupt
from milepost.jobmaster.figures.timings import PHASE_GROUPS

if TYPE_CHECKING:
    import pyarrow as pa

ROW_BYTES = 600
"""Approximate size of a row in memory."""

_GROUP_OF = {f"{phase}_ms": at for at, phases in enumerate(PHASE_GROUPS.values()) for phase in phases}

TIMES = ("trigger_time", "end_time")

_MAX_TIME_MS = 253_402_300_800_000
"""Start of the year 10,000, in ms since 1970."""


class EpochRow(NamedTuple):
    """An epoch that completed or was aborted. Times are in ms since the epoch; None: unknown.

    Attributes:
        refused_by: rules that vetoed it. groups: milliseconds by phase group, in the order of `PHASE_GROUPS`; ():
            not measured, or not read.
    """

    checkpoint_id: int
    epoch: int | None
    timeline: str
    parent: int
    token: int
    version: int
    status: str
    reason: str | None
    refused_by: list[str] | None
    trigger_time: int | None
    end_time: int | None
    duration_ms: int | None
    rows_in: int | None
    rows_out: int | None
    late_rows: int | None
    dropped_rows: int | None
    bad_records: int | None
    lag_ms: int | None
    quality: str | None
    code_hash: str | None
    spec_hash: str | None
    judged_rows: int | None = None
    rejected_rows: int | None = None
    groups: tuple[int, ...] = ()

    @property
    def is_completed(self) -> bool:
        return self.status == "completed"


def late_share(late_rows: int, rows_in: int, bad_records: int) -> float:
    """Return the share of late rows among the rows read, 0 to 1. A row may be late at several operators."""
    read = rows_in + bad_records
    return min(1.0, late_rows / read) if read else 0.0


COLUMNS = EpochRow._fields[:-1]
"""Columns of all fields but `groups`, which are read from the column `PHASES`."""

PHASES = "phases"


def with_times_ms(table: pa.Table, key: str) -> pa.Table:
    """Return a table with times in ms since 1970. Raises StateCorrupt: a time is before 1970 or after 9999."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in TIMES:
        times = table.column(name).cast(pa.int64())
        table = table.set_column(table.column_names.index(name), name, times)
        limits = pc.min_max(times).as_py()
        for time in limits.values():
            if time is not None and not 0 <= time < _MAX_TIME_MS:
                raise StateCorrupt(f"object {key} with figures of past epochs has the time {time} ms", key=key)
    return table


def decode_epochs(table: pa.Table, key: str) -> list[EpochRow]:
    """Return the rows of a table with `COLUMNS` and, if it has them, `PHASES`.

    Raises: StateCorrupt: a time cannot be represented.
    """
    table = with_times_ms(table, key)
    values = {name: _values(table.column(name)) for name in COLUMNS}
    if PHASES not in table.column_names:
        return [EpochRow(*row) for row in zip(*values.values(), strict=True)]
    rows = zip(*values.values(), _phase_groups(table.column(PHASES)), strict=True)
    return [EpochRow._make(row) for row in rows]


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column, several times faster than `to_pylist`. Equal texts share one object."""
    import pyarrow as pa

    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_int64(column.type) and not column.null_count:
        numbers: list[Any] = column.to_numpy().tolist()
        return numbers
    if not pa.types.is_string(column.type):
        return column.to_pylist()
    found = column.combine_chunks().dictionary_encode()
    texts = [*found.dictionary.to_pylist(), None]
    return [texts[at] for at in found.indices.fill_null(-1).to_numpy(zero_copy_only=False).tolist()]


def _phase_groups(phases: pa.ChunkedArray) -> list[tuple[int, ...]]:
    """Return the milliseconds by group of each row, without a Python object per phase.

    Rows {plan_ms: 3, begin_ms: 4, read_ms: 5} and null, with the groups plan and read: (7, 5) and ().
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    found: list[tuple[int, ...]] = []
    names = pa.array(list(_GROUP_OF))
    numbers = np.fromiter(_GROUP_OF.values(), np.int64, len(_GROUP_OF))
    for chunk in phases.chunks:
        offsets = np.asarray(chunk.offsets)
        first, last = int(offsets[0]), int(offsets[-1])
        lengths = np.diff(offsets)
        row_of = np.repeat(np.arange(len(chunk)), lengths)
        places = pc.index_in(chunk.keys[first:last], names).fill_null(-1).to_numpy(zero_copy_only=False)
        spent = chunk.items[first:last].fill_null(0).to_numpy(zero_copy_only=False)
        known = places >= 0
        sums = np.zeros((len(chunk), max(numbers) + 1), np.int64)
        np.add.at(sums, (row_of[known], numbers[places[known]]), spent[known])
        measured = (lengths > 0) & chunk.is_valid().to_numpy(zero_copy_only=False)
        found += [tuple(row) if is_measured else () for row, is_measured in zip(sums.tolist(), measured, strict=True)]
    return found
