"""The command that compares two checkpoints: diff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.inspection import TableFormat, ToFile, show_table
from pipeline.cli.options import Job, Json, Verbose
from pipeline.cli.output import Output
from pipeline.protocol.errors import InvalidRequest

if TYPE_CHECKING:
    from pipeline.diff import Difference

_SHOWN_ROWS = 20
_COUNTED = ("added", "removed", "changed")


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(diff)


def diff(
    ctx: typer.Context,
    job: Job,
    before: Annotated[int, typer.Argument(metavar="A", min=0, help="A retained checkpoint; 0 is the empty state.")],
    after: Annotated[int, typer.Argument(metavar="B", min=0, help="Another one: what it has and A has not is added.")],
    operator: Annotated[str | None, typer.Option("--operator", metavar="UID", help="Only this state, whole.")] = None,
    source: Annotated[str | None, typer.Option("--source", metavar="NAME", help="Only these objects, all.")] = None,
    sink: Annotated[str | None, typer.Option("--sink", metavar="NAME", help="Only this table, whole.")] = None,
    format_: TableFormat = None,
    file: ToFile = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show what changed between two checkpoints: state by key, consumed objects, published rows."""
    from pipeline.config.load import load_job
    from pipeline.jobmaster import JobMaster

    chosen = [(kind, name) for kind, name in (("operator", operator), ("source", source), ("sink", sink)) if name]
    if len(chosen) > 1:
        raise InvalidRequest("--operator, --source and --sink exclude each other. Nothing was read.")
    if not chosen and (file is not None or format_ is not None):
        raise InvalidRequest("--format and --output need --operator, --source or --sink: one table at a time.")
    output: Output = ctx.obj
    found = JobMaster(load_job(job)).diff(before, after, chosen[0] if chosen else None)
    if chosen and not (output.json and file is None):
        if found[0].note:
            output.note(f"{found[0].kind} {found[0].name}: {found[0].note}")
        return show_table(found[0].changes.table, format_, file, output)
    if output.json:
        return output.document({"from": before, "to": after, "differences": [_document(item) for item in found]})
    return _show(found, output)


def _document(item: Difference) -> dict[str, Any]:
    from pipeline.cli.tables import as_rows

    table = item.changes.table
    counts = {name: item.changes.count(name) for name in _COUNTED}
    rows = {"columns": table.column_names, "rows": as_rows(table)}
    return {"kind": item.kind, "name": item.name, "note": item.note, **counts, **rows}


def _show(found: list[Difference], output: Output) -> None:
    from pipeline.cli.tables import as_rows

    rows = [[item.kind, item.name, *(item.changes.count(name) for name in _COUNTED), item.note] for item in found]
    output.table(["kind", "name", *_COUNTED, "note"], rows)
    for item in found:
        table = item.changes.table
        if not table.num_rows:
            continue
        output.text()
        output.text(f"{item.kind} {item.name}")
        shown = as_rows(table.slice(0, _SHOWN_ROWS))
        output.table(table.column_names, [[row[name] for name in table.column_names] for row in shown])
        if table.num_rows > _SHOWN_ROWS:
            output.note(f"{_SHOWN_ROWS} of {table.num_rows:,} rows; --{item.kind} {item.name} shows all")
