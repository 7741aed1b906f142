"""Print tables of subtasks, and how evenly their work is distributed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from milepost.cli.terminal.output import Output, show_bytes, show_count

if TYPE_CHECKING:
    from milepost.jobmaster import CheckpointDetails, Spread, SubtaskDetails

_TIMES = (
    *("total", "read", "exchange_wait", "restore", "process", "emit", "sync", "stage", "async", "async_wait"),
    "alignment",
)
_BYTES = {"full_bytes": "state", "uploaded_bytes": "written", "in_flight_bytes": "in flight", "bytes": "files"}
_COUNTS = {"rows_in": "rows in", "rows_out": "rows out", "late_rows": "late", "slices": "slices"}
_NOTHING = ("-", "0", "0 B")
_OFTEN_READ = (
    *("process", "state", "exchange wait", "rows out", "read", "late", "slices", "stage", "restore", "async wait"),
    *("emit", "written", "sync", "async", "files", "in flight", "alignment"),
)
"""Columns that a narrow terminal omits, the last one first."""


def show_subtasks(report: CheckpointDetails, output: Output) -> None:
    """Print a line per subtask of each node, then the spread for nodes with several subtasks."""
    rows = list(_rows(report))
    names = ["operator", "subtask", *_COUNTS.values(), *_BYTES.values(), *("ms" if n == "total" else n for n in _TIMES)]
    names = [name.replace("_", " ") for name in names]
    used = [at for at in range(len(names)) if at < 2 or any(row[at] not in _NOTHING for row in rows)]
    columns = [names[at] for at in used]
    output.table(
        columns,
        [[row[at] for at in used] for row in rows],
        optional=[name for name in _OFTEN_READ if name in columns],
        figures=[name for name in columns if name != "operator"],
    )


def _rows(report: CheckpointDetails) -> Iterator[list[str]]:
    for name, source in report.sources.items():
        yield from _of_node(f"source {name}", source.subtasks, source.spread)
    for uid, operator in report.operators.items():
        yield from _of_node(uid, operator.subtasks, operator.spread)
    for name, sink in (report.published or {}).items():
        yield from _of_node(f"sink {name}", sink.subtasks, sink.spread)


def _of_node(name: str, subtasks: Sequence[SubtaskDetails], spread: Mapping[str, Spread]) -> Iterator[list[str]]:
    for one in subtasks:
        figures = {figure: getattr(one, figure) for figure in (*_COUNTS, *_BYTES)} | dict(one.times)
        yield [name, str(one.subtask), *_cells(figures)]
    for of in ("min", "median", "max") if spread else ():
        yield [name, of, *_cells({figure: getattr(values, of) for figure, values in spread.items()})]


def _cells(figures: Mapping[str, Any]) -> Iterator[str]:
    for name in _COUNTS:
        yield _figure(figures.get(name))
    for name in _BYTES:
        size = figures.get(name)
        yield show_bytes(size if size is None else round(size))
    for name in _TIMES:
        yield _figure(figures.get(f"{name}_ms"))


def _figure(value: float | None) -> str:
    """Return a count as text. The median of an even number of counts may be a fraction."""
    return show_count(int(value) if value is not None and value == int(value) else value)
