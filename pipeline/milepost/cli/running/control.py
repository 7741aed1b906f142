"""The commands that stop and restart epochs and jobs: abort, cancel, start, resume."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.epoch import counted
from milepost.errors import InvalidRequest
from milepost.protocol.records import checkpoint_name

if TYPE_CHECKING:
    from milepost.jobmaster import CanceledJob, StartedFromSavepoint

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the group."""
    for command in (abort, cancel, start, resume):
        app.command()(command)


def confirmed(question: str, yes: bool, output: Output) -> bool:
    """Ask on the terminal for confirmation. Without a terminal, or with `--json`, `--yes` is required.

    Raises:
        InvalidRequest: there is no terminal and `--yes` is not given.
    """
    if yes:
        return True
    if output.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidRequest(
            f"{question} There is no terminal to ask on. Nothing was changed.", hint="add --yes to continue"
        )
    return typer.confirm(question, err=True)


def abort(ctx: typer.Context, job: Job, as_json: Json = False, verbose: Verbose = False) -> None:
    """Abort the running epoch. None of its rows become visible; the next epoch reads its input again."""
    from milepost.jobmaster import AbortedCheckpoint

    output: Output = ctx.obj
    result = open_job(job).lifecycle.abort_running()
    if output.json:
        return output.document(result)
    if not isinstance(result, AbortedCheckpoint):
        return output.text(f"nothing to abort: {result.message}")
    return output.text(
        f"checkpoint {result.checkpoint_id} is aborted ({result.reason}); the session that ran it is fenced"
    )


def cancel(
    ctx: typer.Context,
    job: Job,
    yes: Yes = False,
    savepoint: Annotated[
        bool, typer.Option("--savepoint", help="First save the last checkpoint. If that fails, the job continues.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """End the job: abort its epoch and publish completed checkpoints. No epoch runs until `start`."""
    output: Output = ctx.obj
    master = open_job(job)
    name = master.job.spec.name
    if not confirmed(f"End this incarnation of {name}? Its running epoch is aborted.", yes, output):
        return output.note("nothing was changed")
    result = master.savepoints.cancel(savepoint=savepoint)
    if output.json:
        return output.document(result)
    if result.savepoint is not None:
        output.text(f"savepoint {result.savepoint.name} holds checkpoint {result.savepoint.checkpoint_id}")
    for line in result.published:
        output.text(f"published {line}, which was waiting")
    if result.outcome != "canceled":
        return output.text(f"nothing to cancel: job {name} is {_shown(result)}")
    aborted = result.aborted_checkpoint
    epoch = f"; its running epoch, checkpoint {aborted}, is aborted" if aborted is not None else ""
    return output.text(f"job {name} is {_shown(result)}{epoch}")


def start(
    ctx: typer.Context,
    job: Job,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="ID|SAVEPOINT",
            help="A checkpoint id of this job, the name of one of its savepoints, or the location of any savepoint: a "
            "URL, or a path that contains a / and is relative to the spec. Default: the head.",
        ),
    ] = None,
    claim: Annotated[
        bool,
        typer.Option(
            "--claim",
            help="Take ownership of the savepoint: it is deleted after the restore, and the job adopts existing tables "
            "of the savepoint's job at the paths of its sinks.",
        ),
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Open the next incarnation of a job that has ended, or start a new job from a savepoint."""
    from milepost.jobmaster import StartedFromSavepoint

    output: Output = ctx.obj
    master = open_job(job)
    result, name = master.restores.start(from_, claim=claim), master.job.spec.name
    if output.json:
        return output.document(result)
    if isinstance(result, StartedFromSavepoint):
        return _show_restored(name, result, output)
    if result.outcome != "started":
        return output.text(f"nothing to start: job {name} is {result.job_status}")
    if result.rolled_back_from is not None:
        output.text(f"job {name} is back at {checkpoint_name(result.head or 0)}, on timeline {result.timeline}")
    return output.text(f"job {name}: {output.as_typed(master.triggers.open_incarnation())}")


def resume(ctx: typer.Context, job: Job, as_json: Json = False, verbose: Verbose = False) -> None:
    """Clear a job's FAILED state after its cause is fixed."""
    output: Output = ctx.obj
    master = open_job(job)
    result, name = master.lifecycle.resume(), master.job.spec.name
    if output.json:
        return output.document(result)
    before = "was FAILED and is" if result.resumed else "was not FAILED; it is"
    return output.text(f"job {name} {before} {result.status}")


def _show_restored(job: str, result: StartedFromSavepoint, output: Output) -> None:
    """Print what a start from a savepoint did."""
    saved = result.savepoint
    output.text(
        f"job {job}: incarnation {result.incarnation} is open at checkpoint {result.head}, a copy of checkpoint "
        f"{saved.checkpoint_id} of job {saved.job} ({counted(saved.objects, 'object')}, "
        f"{counted(saved.bytes, 'byte')})"
    )
    for name in saved.not_restored:
        output.note(
            f"note: the savepoint has a table of sink {name}, which the spec does not have: it was not restored"
        )
    claimed = result.claimed
    if claimed is None:
        return output.note(f"The savepoint at {saved.location} is still yours: the job does not depend on it.")
    if claimed.left:
        output.note(f"at {claimed.location}: {claimed.left}")
    if claimed.listed_by:
        output.note(
            f"note: if job {claimed.listed_by} lists this savepoint, its objects no longer exist. To check, run "
            f"`milepost savepoint list {claimed.listed_by}`; `milepost savepoint dispose` removes it from the list"
        )
    return output.text(f"the savepoint was claimed; deleted: {counted(claimed.deleted_objects, 'object')}")


def _shown(result: CanceledJob) -> str:
    head = f"checkpoint {result.head}" if result.head is not None else "none"
    return f"{result.status.upper()}, incarnation {result.incarnation}, head {head}"
