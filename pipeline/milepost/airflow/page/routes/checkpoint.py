"""The page of one checkpoint: what became of it, by source, operator, sink and subtask, and where its time went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse

from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.codec.records import to_json
from milepost.errors import StateCorrupt
from milepost.jobmaster.jobmaster import CheckpointReport, JobMaster

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
    """A column of a table of subtasks. form: count, size, milliseconds or moment."""

    name: str
    title: str
    form: str


@dataclass(frozen=True, slots=True)
class Node:
    """A source, an operator or a sink, and its subtasks as a table.

    Attributes:
        figures: by name, of the node as a whole.
        rows: of each subtask its index and its figures. spread: least, median and greatest of them, in words.
        longest_ms: time of its longest subtask; None: not measured.
    """

    name: str
    kind: str
    figures: Mapping[str, Any]
    columns: tuple[Column, ...]
    rows: tuple[tuple[int, Mapping[str, Any]], ...]
    spread: tuple[tuple[str, Mapping[str, Any]], ...]
    longest_ms: int | None

    @property
    def timed(self) -> bool:
        """Whether times of its subtasks were measured."""
        return any(column.form == "milliseconds" for column in self.columns)

    @property
    def titles(self) -> list[str]:
        """The heads of the table's columns, all of numbers."""
        return ["#Subtask", *(f"#{column.title}" for column in self.columns)]


@router.get("/checkpoints/{checkpoint_id}")
def checkpoint(at: OpenedJob, checkpoint_id: Annotated[int, Path(ge=1)]) -> HTMLResponse:
    """One checkpoint in full; of one whose metadata is damaged what the log says, and why there is no more."""
    report, unreadable = at.ask(partial(_shown, checkpoint_id))
    document: dict[str, Any] = to_json(report)
    phases = dict(document.get("phases") or {})
    total_ms = phases.pop("total_ms", None)
    return at.render(
        "checkpoint.html",
        "checkpoints",
        checkpoint=document,
        unreadable=unreadable,
        details="phases" in document,
        flow=[*_nodes(document, "sources", "source"), *_nodes(document, "operators", "")],
        sinks=list(_nodes(document, "published", "sink")),
        phases=[(name.removesuffix("_ms"), spent) for name, spent in phases.items() if spent is not None],
        total_ms=total_ms,
        longest_ms=max((spent for spent in phases.values() if spent is not None), default=0) or 1,
    )


def _shown(checkpoint_id: int, master: JobMaster) -> tuple[CheckpointReport, str | None]:
    """Return a checkpoint, and why there is no more of it; None: there is."""
    try:
        return master.show(checkpoint_id, reckoned=False), None
    except StateCorrupt as error:
        return master.show(checkpoint_id, details=False), error.message


def _nodes(document: Mapping[str, Any], part: str, kind: str) -> Iterator[Node]:
    """Yield the nodes of one part of a checkpoint's document, with their subtasks."""
    for name, one in (document.get(part) or {}).items():
        rows = [(each["subtask"], {**each, **each["times"]}) for each in one["subtasks"]]
        spread = (
            [(word, {figure: values[of] for figure, values in one["spread"].items()}) for of, word in _SPREAD]
            if one["spread"]
            else []
        )
        times = [figures["total_ms"] for _, figures in rows if "total_ms" in figures]
        yield Node(
            name=name,
            kind=kind or one["kind"],
            figures=one,
            columns=tuple(_columns([figures for _, figures in rows])),
            rows=tuple(rows),
            spread=tuple(spread),
            longest_ms=max(times, default=None),
        )


def _columns(rows: Sequence[Mapping[str, Any]]) -> Iterator[Column]:
    """Yield the columns that tell subtasks apart: what is nothing in all of them, but rows, is left out."""
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
