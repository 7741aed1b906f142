"""The command `rollback`, which returns a job to a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.running.control import Yes
from milepost.cli.switching.rewind import show_rewind_points
from milepost.cli.switching.shown_plan import agreed
from milepost.cli.terminal.completion import checkpoint_ids
from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.protocol.records import checkpoint_name

if TYPE_CHECKING:
    from milepost.jobmaster import RollbackResult


_MAX_POINTS = 50
"""Number of rewind points that `--points` lists."""


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(rollback)


def rollback(
    ctx: typer.Context,
    job: Job,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="ID|TIME",
            help="A retained checkpoint, 0 for the empty state, or a time, which means the newest checkpoint triggered "
            "at or before it.",
            autocompletion=checkpoint_ids,
        ),
    ] = None,
    points: Annotated[
        bool, typer.Option("--points", help="List the rewind points, and what each rollback would change.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    yes: Yes = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Abort a running epoch and fence its session.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Return state, source positions, rows in flight and every table to a checkpoint. Nothing is deleted."""
    from milepost.jobmaster import Session

    output: Output = ctx.obj
    master = open_job(job, ahead=True)
    if points:
        return show_rewind_points(output.as_typed(master.rollbacks.rewind_points(_MAX_POINTS)), output)
    if to is None:
        raise typer.BadParameter("--to ID|TIME is required; --points lists the checkpoints", param_hint="--to")
    plan = output.as_typed(master.rollbacks.plan(to))
    question = f"Roll {plan.job} back to {checkpoint_name(plan.target.checkpoint_id)}?"
    if not agreed(plan, question, output, dry_run=dry_run, yes=yes):
        return None
    rolled_back = master.rollbacks.run(
        Session.cli(), plan.approved, take_over=take_over, detail=f"by a person: milepost rollback --to {to}"
    )
    result = output.as_typed(rolled_back)
    return output.document(result) if output.json else _show_result(result, output)


def _show_result(result: RollbackResult, output: Output) -> None:
    at = checkpoint_name(result.checkpoint_id)
    if result.aborted_checkpoint is not None:
        output.text(f"checkpoint {result.aborted_checkpoint} is aborted; the session that ran it is fenced")
    if result.outcome == "nothing_to_roll_back":
        followed = f"; reconciled sinks: {', '.join(result.followed)}" if result.followed else ""
        return output.text(f"nothing to roll back: job {result.job} is at {at}{followed}")
    discarded = ", ".join(map(str, result.discarded)) or "none"
    output.text(f"job {result.job} is back at {at}, on timeline {result.timeline}; discarded: {discarded}")
    output.text(f"sinks that are back: {', '.join(result.sinks) or 'none'}")
    return output.text(f"next: {result.next_step}")
