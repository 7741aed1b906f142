"""Commands over all checkpoints of a job: list, history."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.cli.terminal.views import show_table


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
    from milepost.views import checkpoint_table

    output: Output = ctx.obj
    found = open_job(job, ahead=True).reports.list_checkpoints(
        status.value if status else None, _read_limit(limit, every)
    )
    checkpoints = found if every else found[:limit]
    truncated = _note_more(output, len(checkpoints), len(found))
    if output.json:
        return output.document({"checkpoints": checkpoints, "truncated": truncated})
    return show_table(checkpoint_table(checkpoints), output)


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
    from milepost.views import log_table

    output: Output = ctx.obj
    found = open_job(job).reports.history(_read_limit(limit, every))
    events = found if every else found[:limit]
    truncated = _note_more(output, len(events), len(found))
    if output.json:
        return output.document({"events": events, "truncated": truncated})
    return show_table(log_table(events), output)
