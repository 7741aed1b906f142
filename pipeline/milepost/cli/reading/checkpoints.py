"""Commands over all checkpoints of a job: list, history."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.views import show_bytes, show_count, show_time

if TYPE_CHECKING:
    from milepost.jobmaster import CheckpointReport


class CheckpointState(StrEnum):
    """States of a checkpoint."""

    pending = "pending"
    completed = "completed"
    aborted = "aborted"
    subsumed = "subsumed"


_NEWEST = 50

Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Show the newest N.")]
Every = Annotated[bool, typer.Option("--all", help="Show all. Reads the whole log.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the group."""
    app.command("list")(list_)
    app.command()(history)


def list_(
    ctx: typer.Context,
    job: Job,
    status: Annotated[CheckpointState | None, typer.Option("--status", help="Only checkpoints of this status.")] = None,
    limit: Limit = _NEWEST,
    every: Every = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """List the job's checkpoints, newest first. A wide terminal shows more columns."""
    output: Output = ctx.obj
    found = open_job(job, ahead=True).reports.list_checkpoints(
        status.value if status else None, _read_limit(limit, every)
    )
    checkpoints = found if every else found[:limit]
    truncated = _note_more(output, len(checkpoints), len(found))
    if output.json:
        return output.document({"checkpoints": checkpoints, "truncated": truncated})
    return output.table(
        list(_COLUMNS),
        [[cell(checkpoint) for cell in _COLUMNS.values()] for checkpoint in checkpoints],
        optional=("timeline", "epoch", "watermark", "bytes"),
        notes=[_note(checkpoint) for checkpoint in checkpoints],
        figures=("duration", "rows in", "rows out", "late", "bytes"),
    )


_COLUMNS: dict[str, Any] = {
    "id": lambda report: report.checkpoint_id,
    "epoch": lambda report: report.epoch,
    "timeline": lambda report: report.timeline,
    "status": lambda report: report.status,
    "triggered": lambda report: show_time(report.trigger_time),
    "duration": lambda report: None if report.duration_ms is None else f"{report.duration_ms / 1000:.1f} s",
    "rows in": lambda report: show_count(report.rows_in),
    "rows out": lambda report: show_count(report.rows_out),
    "late": lambda report: show_count(report.late_rows),
    "bytes": lambda report: show_bytes(report.checkpointed_bytes),
    "watermark": lambda report: show_time(report.watermark),
}


def _note(checkpoint: CheckpointReport) -> str:
    """Return a remark: why it failed, that it is not live, or that the log is compacted."""
    if checkpoint.failure_reason:
        detail = " ".join(str(checkpoint.failure_detail or "").split())
        return f"{checkpoint.failure_reason}: {detail}" if detail else checkpoint.failure_reason
    if checkpoint.status != CheckpointState.aborted and checkpoint.live is False:
        return f"not live: the head does not continue it (timeline {checkpoint.timeline or 'unknown'})"
    if checkpoint.bad_records:
        return f"{show_count(checkpoint.bad_records)} records that cannot be read"
    return "compacted" if checkpoint.compacted else ""


def _read_limit(limit: int, every: bool) -> int | None:
    """Return the number of entries to read: one more than is shown, to detect further ones; None reads all."""
    return None if every else limit + 1


def _note_more(output: Output, shown: int, total: int) -> bool:
    """Print a note if there are no entries, or more than shown. Returns whether there are more."""
    if not total:
        output.note("there are none")  # yet, or with the requested status
    if total > shown:
        output.note(f"the newest {shown}: there are more (--limit N, --all)")
    return total > shown


def history(
    ctx: typer.Context,
    job: Job,
    limit: Limit = _NEWEST,
    every: Every = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show the manifest log: every transition of the job, newest first."""
    output: Output = ctx.obj
    found = open_job(job).reports.history(_read_limit(limit, every))
    events = found if every else found[:limit]
    truncated = _note_more(output, len(events), len(found))
    if output.json:
        return output.document({"events": events, "truncated": truncated})
    return output.table(
        ["version", "time", "event", "checkpoint", "session"],
        [
            [
                event["version"],
                show_time(event["time"]),
                event["event"],
                event.get("checkpoint_id"),
                event.get("session_id"),
            ]
            for event in events
        ],
        optional=("session",),
        notes=[_why(event) for event in events],
    )


def _why(event: dict[str, Any]) -> str:
    """Return the reason and detail of a transition, or ""."""
    facts = [" ".join(str(event[name]).split()) for name in ("reason", "detail") if event.get(name)]
    return ": ".join(facts)
