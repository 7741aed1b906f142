"""The command `land`, which appends the newest rows of external systems to the logs of their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.terminal.failures import note_problem
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.epoch import counted
from milepost.views import show_bytes

if TYPE_CHECKING:
    from milepost.jobmaster import LandingReport

NOT_LANDED = 1
"""Exit code if a source could not be landed."""


def register(app: typer.Typer) -> None:
    """Add these commands to the group."""
    app.command()(land)


def land(
    ctx: typer.Context,
    job: Job,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="NAME", help="Land only this source. Default: all landed sources."),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Land new rows of external systems now. Epochs read them afterwards."""
    from milepost.jobmaster import JobMaster
    from milepost.jobspec.load import load_job

    output: Output = ctx.obj
    report = JobMaster(load_job(job)).landings.land(source or None)
    if output.json:
        output.document(report, ok=not report.failed)
    else:
        show_landings(report, output)
    if report.failed:
        raise typer.Exit(NOT_LANDED)


def show_landings(report: LandingReport, output: Output) -> None:
    """Print what was landed of each source, and why others were not landed."""
    if report.not_due:
        output.text(f"nothing was landed: {report.not_due}")
    elif not report.landed and not report.failed:
        output.text("nothing to do: the job has no landed source")
    for one in report.landed:
        rows = f"{counted(one.rows, 'row')}, {show_bytes(one.bytes)}, in {counted(one.records, 'record')}"
        output.text(f"source {one.source}: landed {rows}" if one.records else f"source {one.source}: nothing new")
    show_failed_landings(report, output)


def show_failed_landings(report: LandingReport, output: Output) -> None:
    """Print why sources were not landed, to stderr."""
    for failed in report.failed:
        note_problem(failed.message, failed.hint, failed.runbook, output)
