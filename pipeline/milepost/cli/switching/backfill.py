"""The command that processes recorded input again: backfill."""

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
    from milepost.jobmaster.jobmaster import BackfillResult, DisposedBackfills


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(backfill)


def backfill(
    ctx: typer.Context,
    job: Job,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Event time: rows from here on are processed again.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TIME", help="Event time: what begins after it is replayed, but not judged by the gate."
        ),
    ] = None,
    from_checkpoint: Annotated[
        int | None,
        typer.Option(
            "--from-checkpoint",
            metavar="ID",
            min=0,
            help="Fork there instead; 0 is the empty state.",
            autocompletion=checkpoint_ids,
        ),
    ] = None,
    ranges_per_epoch: Annotated[
        int,
        typer.Option(
            "--ranges-per-epoch",
            metavar="N",
            min=1,
            help="Replay so many recorded epochs in one: faster, less is late.",
        ),
    ] = 1,
    allow_non_restored_state: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored-state",
            help="Forget state at the fork point that no operator of the spec restores: `--dry-run` says what.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan; change nothing.")] = False,
    yes: Yes = False,
    dispose: Annotated[
        bool, typer.Option("--dispose", help="Give up what unfinished backfills of this job have done, and stop them.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Process recorded input again with the code and spec of now; the tables change at the end, all at once.

    The schedule goes on meanwhile. An interrupted backfill goes on when the same command is given again.
    """
    from milepost.jobmaster.jobmaster import JobMaster, Session
    from milepost.jobspec.load.load import load_job

    output: Output = ctx.obj
    asked: dict[str, Any] = {
        "from_": from_,
        "to": to,
        "from_checkpoint": from_checkpoint,
        "ranges_per_epoch": ranges_per_epoch,
        "allow_non_restored_state": allow_non_restored_state,
    }
    master = JobMaster(load_job(job))
    if dispose:
        if (from_, to, from_checkpoint) != (None, None, None) or dry_run:
            raise InvalidRequest("--dispose gives up backfills and takes none of their options. Nothing was changed.")
        if not confirmed(
            f"Give up all unfinished backfills of {master.job.spec.name}? What they replayed is lost.", yes, output
        ):
            return output.note("nothing was changed")
        return _show_disposed(master.dispose_backfills(), output)
    plan = output.as_typed(master.plan_backfill(**asked))
    question = f"Backfill {plan.job}? Epochs to replay: {plan.epochs}."
    if not agreed(plan, question, output, dry_run=dry_run, yes=yes):
        return None

    from milepost.cli.terminal.progress import EpochProgress
    from milepost.spark.driver.open_runner import open_runner

    with EpochProgress() as progress:
        # What was shown is what is done: a fork point that is gone by now is refused, not chosen anew.
        shown = asked | {"from_": None, "from_checkpoint": plan.fork_point, "approved": plan.approved}
        result = output.as_typed(master.backfill(Session.cli(), open_runner(), **shown, progress=progress))
    return output.document(result) if output.json else _show_result(result, output)


def _show_disposed(result: DisposedBackfills, output: Output) -> None:
    if output.json:
        return output.document(result)
    gone = ", ".join(result.disposed)
    return output.text(f"given up: {gone}" if gone else f"job {result.job} has no unfinished backfill")


def _show_result(result: BackfillResult, output: Output) -> None:
    for epoch in result.epochs:
        counts = show_rows(epoch.rows_in, epoch.rows_out, epoch.late_rows)
        output.text(f"checkpoint {epoch.checkpoint_id}: epoch {epoch.epoch}, {counts}, quality {epoch.quality}")
    output.text(
        f"job {result.job} continues checkpoint {result.checkpoint_id} of timeline {result.timeline}; "
        f"timeline {result.from_timeline} stays until retention takes it"
    )
    output.text(f"sinks that show it: {', '.join(result.sinks) or 'none'}")
    return output.text(f"next: {result.next_step}")
