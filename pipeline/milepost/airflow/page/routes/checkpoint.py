"""The page of one checkpoint: its outcome, figures by node and subtask, and times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse

from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.codec import to_json
from milepost.errors import StateCorrupt
from milepost.jobmaster import CheckpointReport, JobMaster

router = APIRouter()

_TIMES = (
    ("total_ms", "All"), ("read_ms", "Read"), ("exchange_wait_ms", "Exchange"), ("restore_ms", "Restore"),
    ("process_ms", "Process"), ("emit_ms", "Emit"), ("sync_ms", "Sync"), ("async_ms", "Async"),
    ("async_wait_ms", "Async wait"), ("stage_ms", "Stage"), ("alignment_ms", "Alignment"),
)  # fmt: skip
_COUNTS = (
    ("rows_in", "Rows in"), ("rows_out", "Rows out"), ("late_rows", "Late"), ("bad_records", "Bad"),
    ("files", "Files"), ("state_rows", "State rows"), ("slices", "Slices"),
)  # fmt: skip
_BYTES = (
    ("bytes", "Size"), ("full_bytes", "State"), ("uploaded_bytes", "Written"), ("in_flight_bytes", "In flight"),
)  # fmt: skip
_ROWS = ("rows_in", "rows_out")
_SPREAD = (("min", "least"), ("median", "median"), ("max", "greatest"))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table of subtasks. form: the filter that formats it: count, size, milliseconds or moment."""

    name: str
    title: str
    form: str


@dataclass(frozen=True, slots=True)
class Node:
    """A source, an operator or a sink, and its subtasks as a table.

    Attributes:
        figures: figures of the whole node, by name.
        rows: index and figures of each subtask. spread: title and figures of the least, median and greatest.
        longest_ms: time of the slowest subtask; None: not measured.
    """

    name: str
    kind: str
    figures: Mapping[str, Any]
    columns: tuple[Column, ...]
    rows: tuple[tuple[int, Mapping[str, Any]], ...]
    spread: tuple[tuple[str, Mapping[str, Any]], ...]
    longest_ms: int | None

    @property
    def has_times(self) -> bool:
        """Whether the times of its subtasks were measured."""
        return any(column.form == "milliseconds" for column in self.columns)

    @property
    def titles(self) -> list[str]:
        """The titles of the table's columns; `#` marks a column of numbers."""
        return ["#Subtask", *(f"#{column.title}" for column in self.columns)]


@router.get("/checkpoints/{checkpoint_id}")
def checkpoint(job_page: OpenedJob, checkpoint_id: Annotated[int, Path(ge=1)]) -> HTMLResponse:
    """Show one checkpoint. If its metadata is damaged, show what the log has, and the error."""
    report, unreadable = job_page.query(partial(_read_report, checkpoint_id))
    document: dict[str, Any] = to_json(report)
    phases = dict(document.get("phases") or {})
    total_ms = phases.pop("total_ms", None)
    return job_page.render(
        "checkpoint.html",
        "checkpoints",
        checkpoint=document,
        unreadable=unreadable,
        details="phases" in document,
        flow=[*_nodes(document, "sources", "source"), *_nodes(document, "operators", "")],
        sinks=list(_nodes(document, "published", "sink")),
        phases=[(name.removesuffix("_ms"), phase_ms) for name, phase_ms in phases.items() if phase_ms is not None],
        total_ms=total_ms,
        longest_ms=max((phase_ms for phase_ms in phases.values() if phase_ms is not None), default=0) or 1,
    )


def _read_report(checkpoint_id: int, master: JobMaster) -> tuple[CheckpointReport, str | None]:
    """Return (report, None), or (report without details, error message) if the metadata is damaged."""
    try:
        return master.reports.show(checkpoint_id, with_cost=False), None
    except StateCorrupt as error:
        return master.reports.show(checkpoint_id, details=False), error.message


def _nodes(document: Mapping[str, Any], part: str, kind: str) -> Iterator[Node]:
    """Yield the nodes of one part of a checkpoint's document, with their subtasks."""
    for name, node in (document.get(part) or {}).items():
        rows = [(subtask["subtask"], {**subtask, **subtask["times"]}) for subtask in node["subtasks"]]
        spread = (
            [
                (title, {figure: values[statistic] for figure, values in node["spread"].items()})
                for statistic, title in _SPREAD
            ]
            if node["spread"]
            else []
        )
        times = [figures["total_ms"] for _, figures in rows if "total_ms" in figures]
        yield Node(
            name=name,
            kind=kind or node["kind"],
            figures=node,
            columns=tuple(_columns([figures for _, figures in rows])),
            rows=tuple(rows),
            spread=tuple(spread),
            longest_ms=max(times, default=None),
        )


def _columns(rows: Sequence[Mapping[str, Any]]) -> Iterator[Column]:
    """Yield the columns that have a value other than 0 in some subtask.

    Row counts are shown also if all are 0, the watermark only if subtasks differ.
    """
    for names, form in ((_COUNTS, "count"), (_BYTES, "size")):
        for name, title in names:
            if any(row.get(name) or (name in _ROWS and row.get(name) is not None) for row in rows):
                yield Column(name, title, form)
    if len({row.get("watermark") for row in rows}) > 1:
        yield Column("watermark", "Watermark", "moment")
    for name, title in _TIMES:
        if any(row.get(name) for row in rows) or (name == "total_ms" and any(name in row for row in rows)):
            yield Column(name, title, "milliseconds")
    if any(row["attempt"] for row in rows):
        yield Column("attempt", "Attempt", "count")
