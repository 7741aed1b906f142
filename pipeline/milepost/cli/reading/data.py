"""Commands that show data: read, state."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from milepost.cli.terminal.completion import operator_uids, sink_names
from milepost.cli.terminal.open_job import checkpoint_at, open_job
from milepost.cli.terminal.options import At, Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.epoch.quantities import counted


class Format(StrEnum):
    """How a table is written."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


TableFormat = Annotated[
    Format | None, typer.Option("--format", help="Default: table; for a file, by its suffix, else parquet.")
]
ToFile = Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write to a file that does not exist.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the group."""
    for command in (read, state):
        app.command()(command)


def read(
    ctx: typer.Context,
    job: Job,
    sink: Annotated[str, typer.Argument(metavar="SINK", help="A sink of the job.", autocompletion=sink_names)],
    at: At = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="PREDICATE", help='Only rows for which this SQL is true: "minutes > 10".'),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=0, metavar="N", help="At most N rows.")] = None,
    format_: TableFormat = None,
    file: ToFile = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Read a published table at the head, or as of a retained checkpoint."""
    output: Output = ctx.obj
    master = open_job(job, ahead=True)
    table = master.read(sink, checkpoint_at(master, at), where)
    shown = table.slice(0, limit)
    if left_out := table.num_rows - shown.num_rows:
        output.note(f"{counted(left_out, 'more row')} left out (--limit)")
    show_table(shown, format_, file, output)


def state(
    ctx: typer.Context,
    job: Job,
    uid: Annotated[
        str, typer.Argument(metavar="UID", help="A stateful operator of the job.", autocompletion=operator_uids)
    ],
    at: At = None,
    stored: Annotated[
        bool, typer.Option("--stored", help="The columns as they are stored, which `bootstrap` takes.")
    ] = False,
    format_: TableFormat = None,
    file: ToFile = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Read an operator's keyed state as a table: aggregates by their names in the spec."""
    master = open_job(job, ahead=True)
    wanted = checkpoint_at(master, at)
    show_table(master.state(uid, wanted) if stored else master.state_values(uid, wanted), format_, file, ctx.obj)


def _default_format(file: Path | None) -> str:
    if file is None:
        return "table"
    suffix = file.suffix.removeprefix(".")
    return suffix if suffix in ("csv", "json") else "parquet"


def show_table(table: Any, format_: Format | None, file: Path | None, output: Output) -> None:
    """Print a table, or write it to a file, as the options of a command ask for."""
    from milepost.cli.terminal.tables import as_rows, write_file, write_stdout

    chosen = format_.value if format_ else _default_format(file)
    if file is not None:
        write_file(table, chosen, file)
        if output.json:
            return output.document({"rows": table.num_rows, "file": str(file), "format": chosen})
        return output.note(f"{table.num_rows:,} rows written to {file}")
    if output.json:
        return output.document({"columns": table.column_names, "rows": as_rows(table)})
    return write_stdout(table, chosen)
