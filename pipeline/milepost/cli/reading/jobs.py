"""The command `jobs`, which lists jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.terminal.completion import job_names
from milepost.cli.terminal.metrics import Form, Format, check_form, print_metrics
from milepost.cli.terminal.options import Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.errors import NotFound
from milepost.views import show_time

if TYPE_CHECKING:
    from milepost.jobspec.load import LoadedJob


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(jobs)


def jobs(
    ctx: typer.Context,
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="[FOLDER|STORAGE|JOB]",
            help="A folder of specs (a path with a /), a storage (a URL or a path), or a job. Default: config/.",
            autocompletion=job_names,
        ),
    ] = None,
    form: Format = Form.TEXT,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """List jobs with their head checkpoint, status and last success."""
    from milepost.jobmaster import jobs_in_storage_of, jobs_of_folder, jobs_under, listed_samples
    from milepost.jobspec.load import CONFIG_FOLDER, is_spec

    output: Output = ctx.obj
    if form is Form.PROMETHEUS:
        check_form(output)
    here = Path.cwd()
    if place is None:
        found = jobs_of_folder(here / CONFIG_FOLDER)
    else:
        found = jobs_in_storage_of(_job(place, here)) if is_spec(place) else jobs_under(place, here)
    if form is Form.PROMETHEUS:
        for one in found:
            if one.problem is not None:
                output.note(f"{one.job}: {one.problem}")
        return print_metrics((sample for one in found for sample in listed_samples(one)), output)
    if output.json:
        return output.document({"jobs": found})
    if not found:
        output.note("there are none")
    return output.table(
        ["job", "status", "head", "epoch", "running", "last success", "timeline"],
        [
            [one.job, one.job_status, one.head, one.epoch, one.pending, show_time(one.last_success), one.timeline]
            for one in found
        ],
        optional=("timeline", "epoch"),
        notes=[one.problem or (f"last epoch failed: {one.last_failure}" if one.last_failure else "") for one in found],
    )


def _job(name: str, here: Path) -> LoadedJob:
    """Return the job of that name. Raises NotFound; for a folder of that name the hint has the command."""
    from milepost.jobspec.load import load_job

    try:
        return load_job(name)
    except NotFound as error:
        if not (here / name).is_dir():
            raise
        raise NotFound(error.message, hint=f"milepost jobs {name}/ lists the jobs of that folder") from error
