"""The tables of checkpoints and of log entries, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from milepost.epoch import lasting
from milepost.views.text import (
    checkpoint_link,
    counts,
    failure_text,
    printable,
    show_bytes,
    show_count,
    show_time,
    state,
)
from milepost.views.tree import UNKNOWN, Figure, Link, LinkTarget, Row, Table, Text, Value

if TYPE_CHECKING:
    from milepost.jobmaster import CheckpointReport, HistoryAct
    from milepost.protocol.records import Actor


def checkpoint_table(reports: Iterable[CheckpointReport]) -> Table:
    """Return a row per checkpoint."""
    columns = ("id", "epoch", "timeline", "status", "triggered", "duration", "rows in", "rows out", "late")
    optional = ("written", "bad", "quality", "run", "watermark")
    rows = tuple(map(_checkpoint, reports))
    return Table((*columns, *optional), rows, optional=("timeline", "epoch", *optional))


def log_table(events: Iterable[Mapping[str, Any]]) -> Table:
    """Return a row per log entry: who did what, and why."""
    rows = []
    for event in events:
        checkpoint_id, run = event.get("checkpoint_id"), event.get("run")
        number = "-" if checkpoint_id is None else checkpoint_link(checkpoint_id)
        who = (printable(event.get("who")), printable(event["what"]))
        version = Text(Figure(event["version"]), link=Link(LinkTarget.LOG_ENTRY, (event["version"],)))
        cells = (version, show_time(event["time"]), *who, number)
        failed = event["event"] == "CheckpointAborted"
        why = failure_text(event.get("reason"), event.get("detail")) if failed else event.get("why") or ""
        rows.append(Row((*cells, "-" if run is None else _run(run["dag_id"], run["run_id"])), printable(why)))
    return Table(("version", "time", "who", "what", "checkpoint", "run"), tuple(rows), optional=("checkpoint", "run"))


def act_table(acts: Iterable[HistoryAct]) -> Table:
    """Return a row per act of a person."""
    return Table(("time", "who", "what", "why", "run"), tuple(map(_act, acts)), optional=("why", "run"))


def act_text(act: HistoryAct) -> str:
    """Return an act as a sentence without its end: "ben rolled back from checkpoint 4 to checkpoint 2"."""
    return f"{_who(act.who)} {printable(act.what)}"


def _act(act: HistoryAct) -> Row:
    who = act.who
    run = "-" if who.dag_id is None or who.run_id is None else _run(who.dag_id, who.run_id)
    return Row((show_time(act.time), _who(who), printable(act.what), printable(act.why or None), run))


def _who(who: Actor) -> str:
    return printable(f"{who.name} (approved by {who.approved_by})" if who.approved_by else who.name or None)


def _run(dag_id: str, run_id: str) -> Text:
    return Text(printable(run_id), link=Link(LinkTarget.AIRFLOW_RUN, (dag_id, run_id)))


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
    cells = (checkpoint_link(report.checkpoint_id), *begun, *figures, *written, show_time(report.watermark))
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
