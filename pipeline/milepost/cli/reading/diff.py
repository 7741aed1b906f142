"""The command `diff`, which compares two checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli.reading.data import TableFormat, ToFile, show_rows
from milepost.cli.terminal.completion import checkpoint_ids, operator_uids, sink_names, source_names
from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output, StreamedRows
from milepost.errors import InvalidRequest
from milepost.views import printable

if TYPE_CHECKING:
    from milepost.jobmaster import Difference

_SHOWN_ROWS = 20
_DOCUMENT_ROWS = 1000
_COUNTED = ("added", "removed", "changed")


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(diff)


def diff(
    ctx: typer.Context,
    job: Job,
    before: Annotated[
        int,
        typer.Argument(
            metavar="A", min=0, help="A retained checkpoint. 0: the empty state.", autocompletion=checkpoint_ids
        ),
    ],
    after: Annotated[
        int,
        typer.Argument(metavar="B", min=0, help="The checkpoint to compare with A.", autocompletion=checkpoint_ids),
    ],
    operator: Annotated[
        str | None,
        typer.Option(
            "--operator", metavar="UID", help="Only this operator's state, all rows.", autocompletion=operator_uids
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="Only this source's objects, all.", autocompletion=source_names),
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option("--sink", metavar="NAME", help="Only this sink's table, all rows.", autocompletion=sink_names),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=0,
            metavar="N",
            help=f"Show N rows of each part. Default: {_SHOWN_ROWS}, with --json {_DOCUMENT_ROWS}; for one part: all.",
        ),
    ] = None,
    format_: TableFormat = None,
    file: ToFile = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show what changed between two checkpoints: state by key, consumed objects, published rows.

    Rows are in the order of their key, or of their columns where there is none. Counts are of all rows.
    """
    chosen = [(kind, name) for kind, name in (("operator", operator), ("source", source), ("sink", sink)) if name]
    if len(chosen) > 1:
        raise InvalidRequest("--operator, --source and --sink exclude each other. Nothing was read.")
    if not chosen and (file is not None or format_ is not None):
        raise InvalidRequest("--format and --output need --operator, --source or --sink: one table at a time.")
    output: Output = ctx.obj
    if limit is None and not chosen:
        limit = _DOCUMENT_ROWS if output.json else _SHOWN_ROWS
    found = open_job(job, ahead=True).reports.diff(before, after, chosen[0] if chosen else None, limit)
    if chosen and not (output.json and file is None):
        if found[0].note:
            output.note(f"{found[0].kind} {found[0].name}: {found[0].note}")
        rows = found[0].changes.rows
        if not rows.num_rows:
            output.note(f"{found[0].kind} {found[0].name}: no row differs")
        if left_out := rows.num_rows - rows.num_kept:
            output.note(f"{left_out:,} more rows are left out (--limit)")
        return show_rows(rows, format_, file, output)
    if output.json:
        from milepost.cli.terminal.tables import as_rows, json_rows

        if chosen:
            differences = [_document(found[0], StreamedRows(json_rows(found[0].changes.rows)))]
        else:
            differences = [_document(item, as_rows(item.changes.table)) for item in found]
        return output.document({"from": before, "to": after, "differences": differences})
    return _show(found, output)


def _document(item: Difference, rows: object) -> dict[str, Any]:
    kept = item.changes.rows
    counts = {name: item.changes.count(name) for name in _COUNTED}
    shown = {"columns": kept.schema.names, "rows": rows, "left_out": kept.num_rows - kept.num_kept}
    return {"kind": item.kind, "name": item.name, "note": item.note, **counts, **shown}


def _show(found: list[Difference], output: Output) -> None:
    from milepost.cli.terminal.tables import as_rows, text_or_base64

    rows = [[item.kind, item.name, *(item.changes.count(name) for name in _COUNTED)] for item in found]
    output.table(["kind", "name", *_COUNTED], rows, notes=[item.note for item in found])
    for item in found:
        kept = item.changes.rows
        if not kept.num_rows:
            continue
        output.text()
        output.text(f"{item.kind} {item.name}")
        shown = as_rows(item.changes.table, text_or_base64)
        columns = _merged(kept.schema.names)
        output.table(
            list(columns), [[_cell(row, *names) for names in columns.values()] for row in shown], breakable=True
        )
        if kept.num_rows > len(shown):
            output.note(f"{len(shown)} of {kept.num_rows:,} rows; --{item.kind} {item.name} shows all")


def _merged(columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return heading -> its columns. A value's old and new column share one heading; a key column has its own."""
    merged: dict[str, tuple[str, ...]] = {}
    for name in columns:
        values = tuple(f"{side}_{name[4:]}" for side in ("old", "new"))
        if name in values and set(values) <= set(columns):
            merged[name[4:]] = values
        else:
            merged[name] = (name,)
    return merged


def _cell(row: dict[str, Any], name: str, new: str | None = None) -> Any:
    if new is None or row["change"] == "removed" or (row["change"] == "changed" and row[name] == row[new]):
        return row[name]
    return row[new] if row["change"] == "added" else f"{printable(row[name])} → {printable(row[new])}"
