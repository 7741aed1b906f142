"""The command `table`, which shows one table, in sections or as JSON."""

from __future__ import annotations

from typing import Annotated

import typer

from milepost.cli.terminal.completion import sink_names
from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.cli.terminal.views import show_view


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(table)


def table(
    ctx: typer.Context,
    job: Job,
    sink: Annotated[str, typer.Argument(metavar="SINK", help="Name of the sink.", autocompletion=sink_names)],
    code: Annotated[bool, typer.Option("--code", help="Also show code that reads it, by engine.")] = False,
    results: Annotated[bool, typer.Option("--results", help="Also show past results of each quality rule.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show one table: rows, files, freshness, columns, quality rules, epochs, a sample. `--json` shows everything."""
    from milepost.views import Fold, table_view

    output: Output = ctx.obj
    report = open_job(job, ahead=True).reports.table(sink, sample=True)
    if output.json:
        return output.document(report)
    folds = [Fold.CODE] * code + [Fold.RESULTS] * results
    return show_view(table_view(report), output, folds)
