"""The commands savepoint create, list and dispose, export, and bootstrap."""

from __future__ import annotations

from typing import Annotated

import typer

from milepost.acts import CREATE, DISPOSE, copy_text
from milepost.cli.terminal.act_command import ActCommand
from milepost.cli.terminal.completion import checkpoint_ids
from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.cli.terminal.progress import EpochProgress, copied_to
from milepost.epoch import counted
from milepost.errors import InvalidRequest
from milepost.views import show_time


def register(app: typer.Typer) -> None:
    """Add these commands to the group."""
    group = typer.Typer(no_args_is_help=True, help="Copies of checkpoints that you own: create, list, dispose.")
    ActCommand(CREATE, "create", is_long=True).register(group)
    group.command("list")(list_)
    ActCommand(DISPOSE, "dispose", asks=True).register(group)
    app.add_typer(group, name="savepoint")
    app.command()(export)
    app.command()(bootstrap)


def list_(ctx: typer.Context, job: Job, as_json: Json = False, verbose: Verbose = False) -> None:
    """List the job's savepoints."""
    output: Output = ctx.obj
    master = open_job(job, ahead=True)
    savepoints = master.list_savepoints()
    if output.json:
        return output.document({"savepoints": savepoints})
    if not savepoints:
        return output.text(f"job {master.job.spec.name} has no savepoint")
    return output.table(
        ["name", "checkpoint", "epoch", "timeline", "created"],
        [
            [savepoint.name, savepoint.checkpoint_id, savepoint.epoch, savepoint.timeline, show_time(savepoint.created)]
            for savepoint in savepoints
        ],
        optional=("timeline", "epoch"),
        notes=[savepoint.location for savepoint in savepoints],
    )


def export(
    ctx: typer.Context,
    job: Job,
    checkpoint_id: Annotated[
        int, typer.Argument(metavar="ID", min=1, help="A retained checkpoint.", autocompletion=checkpoint_ids)
    ],
    target: Annotated[
        str,
        typer.Option("--target", metavar="URL", help="Destination: s3://…, file:///… or a path relative to the spec."),
    ],
    with_input: Annotated[
        bool, typer.Option("--with-input", help="Also copy the input landed after the checkpoint.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Write a self-contained copy of a checkpoint that the job does not track. `start --from` reads it."""
    output: Output = ctx.obj
    with EpochProgress() as progress:
        result = open_job(job).savepoints.export(
            checkpoint_id, target, with_input=with_input, copied=copied_to(progress)
        )
    if output.json:
        return output.document(result)
    for line in copy_text("copy of", result):
        output.text(line)
    return None


def bootstrap(
    ctx: typer.Context,
    job: Job,
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="UID=FILE…", help="For each operator, the path or URL of a .parquet or .csv file with its state."
        ),
    ],
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Start a job with operator state from tables, in the format of `milepost state --stored`."""
    output: Output = ctx.obj
    files: dict[str, str] = {}
    for text in tables:
        uid, equals, file = text.partition("=")
        if not uid or not equals or not file or uid in files:
            raise InvalidRequest(f"expected UID=FILE, each UID once, got {text!r}. Nothing was changed.")
        files[uid] = file
    master = open_job(job)
    result = master.bootstraps.run(files)
    if output.json:
        return output.document(result)
    output.text(f"job {master.job.spec.name} is started at checkpoint {result.head}")
    for uid, operator in result.operators.items():
        output.text(f"{uid}: {counted(operator.rows, 'row')} of {operator.file}")
    return output.note("Its first epoch reads from the `start` of each source. The tables of its sinks are empty.")
