"""The command `realign`, which sets one table back to the job's head."""

from __future__ import annotations

from typing import Annotated

import typer

from milepost.cli.running.control import Yes
from milepost.cli.switching.shown_plan import agreed
from milepost.cli.terminal.completion import sink_names
from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.protocol.records import checkpoint_name


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(realign)


def realign(
    ctx: typer.Context,
    job: Job,
    sink: Annotated[str, typer.Argument(metavar="SINK", help="Name of the sink.", autocompletion=sink_names)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    yes: Yes = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Set a table back to the job's head, after a restore, a failover or a manual change."""
    from milepost.jobmaster import Session

    output: Output = ctx.obj
    master = open_job(job)
    plan = output.as_typed(master.realignments.plan(sink))
    question = f"Set sink {plan.sink} of job {plan.job} to {checkpoint_name(plan.head)}?"
    if not agreed(plan, question, output, dry_run=dry_run, yes=yes, idle=plan.fault is None):
        return None
    result = master.realignments.run(
        Session.cli(), plan, detail=f"by a person: milepost realign {plan.job} {plan.sink}"
    )
    if output.json:
        return output.document(result)
    at = checkpoint_name(result.checkpoint_id)
    if result.outcome == "realigned":
        output.text(f"sink {result.sink} shows {at} of job {result.job} again")
    return output.text(f"next: {result.next_step}")
