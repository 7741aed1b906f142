"""The table of a node's subtasks, and how evenly their work is distributed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from milepost.epoch import counted, lasting
from milepost.views.text import show_bytes, show_count, show_time
from milepost.views.tree import UNKNOWN, Figure, Fold, Row, Table

if TYPE_CHECKING:
    from milepost.jobmaster import Spread, SubtaskDetails

_COLUMNS = {
    "rows_in": ("rows in", show_count),
    "rows_out": ("rows out", show_count),
    "late_rows": ("late", show_count),
    "bad_records": ("bad", show_count),
    "full_bytes": ("state", show_bytes),
    "bytes": ("size", show_bytes),
    "total_ms": ("ms", show_count),
    **{
        f"{name}_ms": (name.replace("_", " "), show_count)
        for name in ("process", "exchange_wait", "read", "stage", "restore", "async_wait", "emit", "sync", "async")
    },
    "alignment_ms": ("alignment", show_count),
    "files": ("files", show_count),
    "state_rows": ("state rows", show_count),
    "uploaded_bytes": ("written", show_bytes),
    "in_flight_bytes": ("in flight", show_bytes),
    "slices": ("slices", show_count),
    "watermark": ("watermark", show_time),
    "attempt": ("attempt", show_count),
}
"""Figure -> its column and its format. A narrow terminal omits the last columns first."""

_ALWAYS = ("rows_in", "rows_out", "total_ms")


def subtask_tables(node: str, subtasks: Sequence[SubtaskDetails], spread: Mapping[str, Spread]) -> tuple[Table, ...]:
    """Return the table of a node's subtasks; () if none is known. Columns without a figure other than 0 are left out.

    A watermark is shown only if subtasks differ in it.
    """
    if not subtasks:
        return ()
    figures = [_figures(subtask) for subtask in subtasks]
    names = [name for name in _COLUMNS if any(row.get(name) or (name in _ALWAYS and name in row) for row in figures)]
    if len({row.get("watermark") for row in figures}) == 1 and "watermark" in names:
        names.remove("watermark")
    rows = [_row(str(subtask.subtask), names, row) for subtask, row in zip(subtasks, figures, strict=True)]
    for statistic in ("min", "median", "max") if spread else ():
        values = {name: getattr(values, statistic) for name, values in spread.items()}
        rows.append(_row(statistic, names, values, muted=True))
    columns = tuple(_COLUMNS[name][0] for name in names)
    times = [subtask.times["total_ms"] for subtask in subtasks if "total_ms" in subtask.times]
    longest = f", the longest took {lasting(max(times))}" if times else ""
    title = f"{counted(len(subtasks), 'subtask')} of {node}{longest}"
    return (Table(("subtask", *columns), tuple(rows), title, columns[2:], Fold.SUBTASKS),)


def _figures(subtask: SubtaskDetails) -> dict[str, Any]:
    own = {name: getattr(subtask, name, None) for name in _COLUMNS}
    return {name: value for name, value in own.items() if value is not None} | dict(subtask.times)


def _row(title: str, names: Sequence[str], figures: Mapping[str, Any], *, muted: bool = False) -> Row:
    cells = (_COLUMNS[name][1](figures[name]) if name in figures else UNKNOWN for name in names)
    return Row((Figure(title), *cells), muted=muted)
