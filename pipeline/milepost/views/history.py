"""The tables of checkpoints and of log entries, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from milepost.epoch import lasting
from milepost.views.text import counts, failure_text, printable, show_bytes, show_count, show_time, state
from milepost.views.tree import UNKNOWN, Figure, Link, LinkTarget, Row, Table, Text, Value

if TYPE_CHECKING:
    from milepost.jobmaster import CheckpointReport


def checkpoint_table(reports: Iterable[CheckpointReport]) -> Table:
    """Return a row per checkpoint."""
    columns = ("id", "epoch", "timeline", "status", "triggered", "duration", "rows in", "rows out", "late")
    optional = ("written", "bad", "quality", "run", "watermark")
    rows = tuple(map(_checkpoint, reports))
    return Table((*columns, *optional), rows, optional=("timeline", "epoch", *optional))


def log_table(events: Iterable[Mapping[str, Any]]) -> Table:
    """Return a row per log entry."""
    rows = []
    for event in events:
        checkpoint_id = event.get("checkpoint_id")
        number = "-" if checkpoint_id is None else _link(checkpoint_id)
        cells = (Figure(event["version"]), show_time(event["time"]), event["event"], number)
        why = failure_text(event.get("reason"), event.get("detail"))
        rows.append(Row((*cells, printable(event.get("session_id"))), why))
    return Table(("version", "time", "event", "checkpoint", "session"), tuple(rows), optional=("session",))


def _link(checkpoint_id: int) -> Text:
    return Text(Figure(checkpoint_id), link=Link(LinkTarget.JOB, ("checkpoints", checkpoint_id)))


def _checkpoint(report: CheckpointReport) -> Row:
    timeline: Value = "-"
    if report.timeline is not None:
        timeline = Text(report.timeline, link=Link(LinkTarget.TIMELINE, (report.timeline,)))
    took = UNKNOWN if report.duration_ms is None else Figure(lasting(report.duration_ms))
    run: Value = "-" if report.leader is None else "no run"
    if report.airflow is not None and report.airflow.dag_id is not None and report.airflow.run_id is not None:
        link = Link(LinkTarget.AIRFLOW_RUN, (report.airflow.dag_id, report.airflow.run_id))
        run = Text(report.airflow.run_type or "run", link=link)
    figures = counts(report.rows_in, report.rows_out, report.late_rows)
    written = (show_bytes(report.checkpointed_bytes), show_count(report.bad_records), printable(report.quality), run)
    begun = (show_count(report.epoch), timeline, state(report.status), show_time(report.trigger_time), took)
    left = report.live is False and report.status != "aborted"
    cells = (_link(report.checkpoint_id), *begun, *figures, *written, show_time(report.watermark))
    return Row(cells, _note(report, left), muted=left)


def _note(report: CheckpointReport, left: bool) -> str:
    """Return why it failed, that it is not live, or that the log is compacted."""
    if report.failure_reason:
        return failure_text(report.failure_reason, report.failure_detail)
    if left:
        return f"not live: the head does not continue it (timeline {report.timeline or 'unknown'})"
    if report.bad_records:
        return f"{show_count(report.bad_records)} records that cannot be read"
    return "compacted" if report.compacted else ""
