"""Commands that show data: input, read, state."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.terminal.completion import operator_uids, sink_names, source_names
from milepost.cli.terminal.open_job import checkpoint_at, open_job
from milepost.cli.terminal.options import At, Job, Json, Verbose
from milepost.cli.terminal.output import Output, StreamedRows
from milepost.epoch import counted, iso_ms
from milepost.protocol.landed import position_text
from milepost.views import show_time

if TYPE_CHECKING:
    from milepost.cli.terminal.tables import Rows


class Format(StrEnum):
    """Output formats of a table."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


TableFormat = Annotated[
    Format | None, typer.Option("--format", help="Default: table. For a file: by its suffix, else parquet.")
]
ToFile = Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write to a new file.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the group."""
    app.command("input")(input_rows)
    for command in (read, state):
        app.command()(command)


def read(
    ctx: typer.Context,
    job: Job,
    sink: Annotated[str, typer.Argument(metavar="SINK", help="Name of the sink.", autocompletion=sink_names)],
    at: At = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="PREDICATE", help='Only rows that match this SQL, such as "minutes > 10".'),
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
    rows = master.reports.table_rows(sink, checkpoint_at(master, at), where, limit)
    if left_out := rows.num_rows - rows.num_kept:
        output.note(f"{counted(left_out, 'more row')} left out (--limit)")
    show_rows(rows, format_, file, output)


def input_rows(
    ctx: typer.Context,
    job: Job,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Name of a landed source.", autocompletion=source_names)
    ],
    record: Annotated[
        int | None,
        typer.Option("--at", min=1, metavar="N", help="A record of its log. Default: the newest with rows."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=0, metavar="N", help="At most N rows.")] = None,
    format_: TableFormat = None,
    file: ToFile = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Read the rows of one record of a landed source's log, in the order in which they were landed."""
    output: Output = ctx.obj
    landed = open_job(job).landings.rows(source, record, limit)
    rows, at = landed.rows, landed.record
    output.note(f"record {at.sequence}, landed {show_time(iso_ms(at.landed_at_ms))}: {counted(rows.num_rows, 'row')}")
    if at.gap is not None:
        lost = f"{position_text(at.start)} -> {position_text(at.end)}"
        output.note(f"it is a gap, {lost} was lost: {at.gap.reason}; approved: {at.gap.approved_by}")
    if at.void is not None:
        what = "accepts the false rows" if at.kind.value == "accept" else "makes records void"
        output.note(f"it {what} from record {at.void.void_from} on: {at.void.reason}; approved: {at.void.approved_by}")
    if landed.void_since is not None:
        output.note(f"it is void since record {landed.void_since}: no epoch reads it")
    if left_out := rows.num_rows - rows.num_kept:
        output.note(f"{counted(left_out, 'more row')} left out (--limit)")
    show_rows(rows, format_, file, output)


def state(
    ctx: typer.Context,
    job: Job,
    uid: Annotated[
        str, typer.Argument(metavar="UID", help="Uid of a stateful operator.", autocompletion=operator_uids)
    ],
    at: At = None,
    stored: Annotated[
        bool, typer.Option("--stored", help="Show the stored columns, as `bootstrap` accepts them.")
    ] = False,
    format_: TableFormat = None,
    file: ToFile = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Read an operator's keyed state as a table. Aggregates have their names in the spec."""
    master = open_job(job, ahead=True)
    show_rows(master.reports.state_rows(uid, checkpoint_at(master, at), stored=stored), format_, file, ctx.obj)


def _default_format(file: Path | None) -> str:
    if file is None:
        return "table"
    suffix = file.suffix.removeprefix(".")
    return suffix if suffix in ("csv", "json") else "parquet"


def show_rows(rows: Rows, format_: Format | None, file: Path | None, output: Output) -> None:
    """Print rows, or write them to a file, according to the options."""
    from milepost.cli.terminal.tables import json_rows, write_file, write_stdout

    chosen = format_.value if format_ else _default_format(file)
    if file is not None:
        write_file(rows, chosen, file)
        if output.json:
            return output.document({"rows": rows.num_kept, "file": str(file), "format": chosen})
        return output.note(f"{rows.num_kept:,} rows written to {file}")
    if output.json:
        return output.document({"columns": rows.schema.names, "rows": StreamedRows(json_rows(rows))})
    return write_stdout(rows, chosen)
