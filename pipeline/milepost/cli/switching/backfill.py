"""The command `backfill`, which processes recorded input again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli.running.control import Yes, confirmed
from milepost.cli.switching.shown_plan import agreed
from milepost.cli.terminal.completion import checkpoint_ids
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output, show_rows
from milepost.errors import InvalidRequest

if TYPE_CHECKING:
    from milepost.jobmaster import BackfillResult, DisposedBackfills


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(backfill)


def backfill(
    ctx: typer.Context,
    job: Job,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Process rows again from this event time on.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TIME", help="Quality-check rows before this event time. Later rows are replayed unchecked."
        ),
    ] = None,
    from_checkpoint: Annotated[
        int | None,
        typer.Option(
            "--from-checkpoint",
            metavar="ID",
            min=0,
            help="Fork at this checkpoint instead. 0: the empty state.",
            autocompletion=checkpoint_ids,
        ),
    ] = None,
    ranges_per_epoch: Annotated[
        int,
        typer.Option(
            "--ranges-per-epoch",
            metavar="N",
            min=1,
            help="Replay N recorded epochs in one. Faster, and fewer rows are late.",
        ),
    ] = 1,
    allow_non_restored_state: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored-state",
            help="Discard state at the fork point that no operator of the spec restores. `--dry-run` lists it.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    yes: Yes = False,
    dispose: Annotated[
        bool, typer.Option("--dispose", help="Stop this job's unfinished backfills and discard their work.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Process recorded input again with the current code and spec. The tables change at the end, all at once.

    The schedule continues meanwhile. To continue an interrupted backfill, run the same command again.
    """
    from milepost.jobmaster import JobMaster, Session
    from milepost.jobspec.load import load_job

    output: Output = ctx.obj
    request: dict[str, Any] = {
        "from_": from_,
        "to": to,
        "from_checkpoint": from_checkpoint,
        "ranges_per_epoch": ranges_per_epoch,
        "allow_non_restored_state": allow_non_restored_state,
    }
    master = JobMaster(load_job(job))
    if dispose:
        if (from_, to, from_checkpoint) != (None, None, None) or dry_run:
            raise InvalidRequest("--dispose cannot be combined with options of a backfill. Nothing was changed.")
        if not confirmed(
            f"Discard all unfinished backfills of {master.job.spec.name}? Their work is lost.", yes, output
        ):
            return output.note("nothing was changed")
        return _show_disposed(master.backfills.dispose(), output)
    plan = output.as_typed(master.backfills.plan(**request))
    question = f"Backfill {plan.job}? Epochs to replay: {plan.epochs}."
    if not agreed(plan, question, output, dry_run=dry_run, yes=yes):
        return None

    from milepost.cli.terminal.progress import EpochProgress
    from milepost.spark.driver import spark_runner

    with EpochProgress() as progress:
        # Carry out exactly the shown plan: if the fork point was deleted since, refuse instead of choosing another.
        approved = request | {"from_": None, "from_checkpoint": plan.fork_point, "approved": plan.approved}
        result = output.as_typed(master.backfills.run(Session.cli(), spark_runner(), **approved, progress=progress))
    return output.document(result) if output.json else _show_result(result, output)


def _show_disposed(result: DisposedBackfills, output: Output) -> None:
    if output.json:
        return output.document(result)
    disposed = ", ".join(result.disposed)
    return output.text(f"discarded: {disposed}" if disposed else f"job {result.job} has no unfinished backfill")


def _show_result(result: BackfillResult, output: Output) -> None:
    for epoch in result.epochs:
        counts = show_rows(epoch.rows_in, epoch.rows_out, epoch.late_rows)
        output.text(f"checkpoint {epoch.checkpoint_id}: epoch {epoch.epoch}, {counts}, quality {epoch.quality}")
    output.text(
        f"job {result.job} continues checkpoint {result.checkpoint_id} of timeline {result.timeline}; "
        f"timeline {result.from_timeline} stays until retention removes it"
    )
    output.text(f"sinks that show it: {', '.join(result.sinks) or 'none'}")
    return output.text(f"next: {result.next_step}")
