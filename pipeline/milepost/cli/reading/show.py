"""The command `show`, which shows one checkpoint, in sections or as JSON."""

from __future__ import annotations

from typing import Annotated

import typer

from milepost.cli.terminal.completion import checkpoint_ids
from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.cli.terminal.views import show_view


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(show)


def show(
    ctx: typer.Context,
    job: Job,
    checkpoint_id: Annotated[
        int | None,
        typer.Argument(metavar="[ID]", min=1, autocompletion=checkpoint_ids, help="A checkpoint. Default: the head."),
    ] = None,
    spec: Annotated[bool, typer.Option("--spec", help="Also show the checkpoint's spec.")] = False,
    tasks: Annotated[bool, typer.Option("--tasks", help="Also show rows, state and times of each subtask.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show one checkpoint: input, output, state, times, quality and its run. `--json` shows everything."""
    from milepost.views import Fold, checkpoint_view

    output: Output = ctx.obj
    report = open_job(job, ahead=True).reports.show(checkpoint_id)
    if output.json:
        return output.document(report)
    folds = [Fold.SUBTASKS] * tasks + [Fold.SPEC] * spec
    return show_view(checkpoint_view(report), output, folds)
