"""The command `land`: append rows of external systems to logs, or let a log continue after lost or false data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.acts import LAND
from milepost.cli.terminal.act_command import ActCommand, Call
from milepost.cli.terminal.completion import source_names
from milepost.cli.terminal.confirmation import DryRun, Yes
from milepost.cli.terminal.failures import note_problem
from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.epoch import counted
from milepost.runbook import address
from milepost.views import show_bytes

if TYPE_CHECKING:
    from milepost.jobmaster import LandingReport


def _option_of(name: str) -> Any:
    """Return the option of a field of the act."""
    field = next(field for field in LAND.fields if field.name == name)
    return typer.Option(field.option, metavar=field.kind.metavar or None, help=field.help)


def register(app: typer.Typer) -> None:
    """Add these commands to the group."""
    app.command()(land)


def land(
    ctx: typer.Context,
    job: Job,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Land only this source. Default: all landed sources.",
            autocompletion=source_names,
        ),
    ] = None,
    resume_from: Annotated[str | None, _option_of("resume_from")] = None,
    void_from: Annotated[str | None, _option_of("void_from")] = None,
    accept_void: Annotated[bool, _option_of("accept_void")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Land new rows of external systems now. Epochs read them afterwards.

    If sources fail, the others are landed. The exit code is that of the errors, or 1 if they have different ones.
    With --resume-from, --void-from or --accept-void nothing is landed: the log of --source gets a record that a person
    approved.
    """
    output: Output = ctx.obj
    approvals = {"resume_from": resume_from, "void_from": void_from, "accept_void": accept_void}
    if any(value not in (None, False) for value in approvals.values()):
        return _approve(job, source or [], approvals, output, dry_run=dry_run, yes=yes)
    if dry_run or yes:
        needed = "it confirms a record of the log, so it needs --resume-from, --void-from or --accept-void"
        raise typer.BadParameter(needed, param_hint="--dry-run and --yes")
    report = open_job(job).landings.land(source or None)
    if output.json:
        output.document(report, ok=not report.failed)
    else:
        show_landings(report, output)
    raise typer.Exit(report.exit_code)


def _approve(
    job: str, sources: list[str], approvals: Mapping[str, object], output: Output, *, dry_run: bool, yes: bool
) -> None:
    """Plan a gap or a void record in the log of a source, ask for confirmation, and append it."""
    if len(sources) != 1:
        raise typer.BadParameter(f"expected one source, got {len(sources)}", param_hint="--source")
    filled = [f"--{name.replace('_', '-')}" for name, value in approvals.items() if value not in (None, False)]
    if len(filled) > 1:
        raise typer.BadParameter("expected one of them", param_hint=" and ".join(filled))
    form = {"source": sources[0], **approvals}
    ActCommand(LAND, asks=True, plans=True).carry_out(Call(output, open_job(job), form, dry_run, yes))


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


def landing_error(report: LandingReport, output: Output) -> dict[str, object] | None:
    """Return why sources were not landed, as the `error` of a `--json` document; None: none failed."""
    if not report.failed:
        return None
    first = report.failed[0]
    return {
        "class": first.error,
        "message": output.as_typed(" ".join(failed.message for failed in report.failed)),
        "hint": output.as_typed("; ".join(dict.fromkeys(failed.hint for failed in report.failed if failed.hint))),
        "runbook": address(first.runbook),
        "details": {"sources": [failed.source for failed in report.failed]},
        "exit_code": report.exit_code,
    }


def show_failed_landings(report: LandingReport, output: Output) -> None:
    """Print why sources were not landed, to stderr."""
    for failed in report.failed:
        note_problem(failed.message, failed.hint, failed.runbook, output)
