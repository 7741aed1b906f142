"""Commands about copies of checkpoints that a person owns: savepoint create, list, dispose; export; bootstrap."""

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
from milepost.epoch.quantities import counted
from milepost.errors import InvalidRequest

if TYPE_CHECKING:
    from milepost.jobmaster.jobmaster import CheckpointCopy

_MEGABYTE = 1_000_000

Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="The savepoint's name.", autocompletion=savepoint_names)
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
        typer.Option("--target", metavar="URL", help="Write it to <URL>/<name>; default: below the job's storage."),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Copy a completed checkpoint, state, positions, rows in flight and tables, so that it stands by itself."""
    output: Output = ctx.obj
    master = open_job(job)
    wanted = checkpoint_at(master, at)
    with _copying() as copied:
        result = master.create_savepoint(name, at=wanted, target=target, copied=copied)
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
        [[one.name, one.checkpoint_id, one.epoch, one.timeline, show_time(one.created)] for one in savepoints],
        optional=("timeline", "epoch"),
        notes=[one.location for one in savepoints],
    )


def dispose(
    ctx: typer.Context, job: Job, name: Name, yes: Yes = False, as_json: Json = False, verbose: Verbose = False
) -> None:
    """Take a savepoint off the list and delete its objects; the job, its checkpoints and its tables stay."""
    output: Output = ctx.obj
    master = open_job(job)
    found = master.find_savepoint(name)
    what = f"savepoint {name} of {master.job.spec.name}, a copy of checkpoint {found.checkpoint_id} at {found.location}"
    if not confirmed(f"Delete {what}?", yes, output):
        return output.note("nothing was changed")
    result = master.dispose_savepoint(name)
    if output.json:
        return output.document(result)
    if result.left:
        output.note(f"at {result.location}: {result.left}")
    return output.text(f"savepoint {name} is disposed of; deleted: {counted(result.deleted_objects, 'object')}")


def export(
    ctx: typer.Context,
    job: Job,
    checkpoint_id: Annotated[
        int, typer.Argument(metavar="ID", min=1, help="A retained checkpoint.", autocompletion=checkpoint_ids)
    ],
    target: Annotated[
        str, typer.Option("--target", metavar="URL", help="Where: s3://…, file:///… or a path relative to the spec.")
    ],
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Write a self-contained copy of a checkpoint to a place the job then forgets; `start --from` reads it."""
    output: Output = ctx.obj
    with _copying() as copied:
        result = open_job(job).export(checkpoint_id, target, copied=copied)
    if output.json:
        return output.document(result)
    return _show_copy(f"copy of checkpoint {result.checkpoint_id}", result, output)


def bootstrap(
    ctx: typer.Context,
    job: Job,
    tables: Annotated[
        list[str],
        typer.Argument(metavar="UID=FILE…", help="Per operator a .parquet or .csv file (or its URL) with its state."),
    ],
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Begin a job with the state of some operators taken from tables, as `milepost state --stored` writes them."""
    output: Output = ctx.obj
    files: dict[str, str] = {}
    for text in tables:
        uid, equals, file = text.partition("=")
        if not uid or not equals or not file or uid in files:
            raise InvalidRequest(f"expected UID=FILE, each UID once, got {text!r}. Nothing was changed.")
        files[uid] = file
    master = open_job(job)
    result = master.bootstrap(files)
    if output.json:
        return output.document(result)
    output.text(f"job {master.job.spec.name}: incarnation {result.incarnation} is open at checkpoint {result.head}")
    for uid, one in result.operators.items():
        output.text(f"{uid}: {counted(one.rows, 'row')} of {one.file}")
    return output.note("Its first epoch reads what `start` of each source says; tables of sinks begin empty.")


def _show_copy(what: str, result: CheckpointCopy, output: Output) -> None:
    output.text(f"{what}: {counted(result.objects, 'object')}, {counted(result.bytes, 'byte')}")
    output.text(f"at {result.location}")
    for name in result.left_out:
        output.note(f"note: sink {name} is not in the spec any more: its table was left out")


@contextmanager
def _copying() -> Iterator[Callable[[int], None]]:
    """Show how much was copied so far; yields what is told the bytes of each object."""
    objects = size = 0

    def copied(more: int) -> None:
        nonlocal objects, size
        objects, size = objects + 1, size + more
        progress(f"copied {counted(objects, 'object')}, {size / _MEGABYTE:.1f} MB")

    with EpochProgress() as progress:
        progress("copying")
        yield copied
