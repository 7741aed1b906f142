"""The commands savepoint create, list and dispose, export, and bootstrap."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.running.control import Yes, confirmed
from milepost.cli.terminal.completion import checkpoint_ids, savepoint_names
from milepost.cli.terminal.open_job import checkpoint_at, open_job
from milepost.cli.terminal.options import At, Job, Json, Verbose
from milepost.cli.terminal.output import Output, show_time
from milepost.cli.terminal.progress import EpochProgress
from milepost.epoch import counted
from milepost.errors import InvalidRequest

if TYPE_CHECKING:
    from milepost.jobmaster import CheckpointCopy

_MEGABYTE = 1_000_000

Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="Name of the savepoint.", autocompletion=savepoint_names)
]


def register(app: typer.Typer) -> None:
    """Add these commands to the group."""
    group = typer.Typer(no_args_is_help=True, help="Copies of checkpoints that you own: create, list, dispose.")
    group.command()(create)
    group.command("list")(list_)
    group.command()(dispose)
    app.add_typer(group, name="savepoint")
    app.command()(export)
    app.command()(bootstrap)


def create(
    ctx: typer.Context,
    job: Job,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Default: checkpoint-<id>.")] = None,
    at: At = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="URL", help="Write it to <URL>/<name>. Default: below the job's storage."),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Create a self-contained copy of a completed checkpoint: state, positions, rows in flight and tables."""
    output: Output = ctx.obj
    master = open_job(job)
    checkpoint_id = checkpoint_at(master, at)
    with _copying() as copied:
        result = master.savepoints.create(name, at=checkpoint_id, target=target, copied=copied)
    if output.json:
        return output.document(result)
    _show_copy(f"savepoint {result.name} of checkpoint {result.checkpoint_id}", result, output)
    location = shlex.quote(result.location)
    return output.note(f"`milepost start JOB --from {location}` starts any job of this kind from it.")


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


def dispose(
    ctx: typer.Context, job: Job, name: Name, yes: Yes = False, as_json: Json = False, verbose: Verbose = False
) -> None:
    """Remove a savepoint from the list and delete its objects. The job, its checkpoints and tables stay."""
    output: Output = ctx.obj
    master = open_job(job)
    found = master.find_savepoint(name)
    copy = f"a copy of checkpoint {found.checkpoint_id} at {found.location}"
    if not confirmed(f"Delete savepoint {name} of {master.job.spec.name}, {copy}?", yes, output):
        return output.note("nothing was changed")
    result = master.savepoints.dispose(name)
    if output.json:
        return output.document(result)
    if result.left:
        output.note(f"at {result.location}: {result.left}")
    return output.text(f"savepoint {name} is removed; deleted: {counted(result.deleted_objects, 'object')}")


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
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Write a self-contained copy of a checkpoint that the job does not track. `start --from` reads it."""
    output: Output = ctx.obj
    with _copying() as copied:
        result = open_job(job).savepoints.export(checkpoint_id, target, copied=copied)
    if output.json:
        return output.document(result)
    return _show_copy(f"copy of checkpoint {result.checkpoint_id}", result, output)


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
    output.text(f"job {master.job.spec.name}: incarnation {result.incarnation} is open at checkpoint {result.head}")
    for uid, operator in result.operators.items():
        output.text(f"{uid}: {counted(operator.rows, 'row')} of {operator.file}")
    return output.note("Its first epoch reads from the `start` of each source. The tables of its sinks are empty.")


def _show_copy(what: str, result: CheckpointCopy, output: Output) -> None:
    output.text(f"{what}: {counted(result.objects, 'object')}, {counted(result.bytes, 'byte')}")
    output.text(f"at {result.location}")
    for name in result.left_out:
        output.note(f"note: sink {name} is no longer in the spec: its table was not copied")


@contextmanager
def _copying() -> Iterator[Callable[[int], None]]:
    """Show the progress of a copy. Yields a function to call with the bytes of each copied object."""
    objects = size = 0

    def copied(more: int) -> None:
        nonlocal objects, size
        objects, size = objects + 1, size + more
        progress(f"copied {counted(objects, 'object')}, {size / _MEGABYTE:.1f} MB")

    with EpochProgress() as progress:
        progress("copying")
        yield copied
