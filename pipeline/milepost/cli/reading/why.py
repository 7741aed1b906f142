"""The command `why`, which traces a row of a table back to its input rows."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.acts import row_values
from milepost.cli.terminal.completion import sink_names
from milepost.cli.terminal.open_job import checkpoint_at, open_job
from milepost.cli.terminal.options import At, Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.epoch import counted
from milepost.errors import CheckpointError

if TYPE_CHECKING:
    from milepost.jobmaster import OriginCut, OriginInput, Place, RowOrigin

_SECONDS = 600
_ROWS = 20
_SILENT_S = 2.0


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command()(why)


def why(
    ctx: typer.Context,
    job: Job,
    sink: Annotated[str, typer.Argument(metavar="SINK", help="Name of the sink.", autocompletion=sink_names)],
    values: Annotated[
        list[str], typer.Argument(metavar="COLUMN=VALUE…", help="Values of one row, such as those of its key.")
    ],
    at: At = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", min=1, metavar="SECONDS", help="Stop after this time, without a list.")
    ] = _SECONDS,
    rows: Annotated[
        int, typer.Option("--rows", min=1, metavar="N", help="List at most N rows of each source.")
    ] = _ROWS,
    since: Annotated[
        int | None,
        typer.Option("--since", min=1, metavar="ID", help="Begin at the state of this retained checkpoint."),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show which input rows made a row of a table. Reads the recorded input again, and writes nothing."""
    from milepost.cli.terminal.progress import EpochProgress
    from milepost.jobmaster import TraceLimits
    from milepost.spark.local import LocalTracer

    output: Output = ctx.obj
    named = row_values(values)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))  # deletes the local state of the replay
    master = open_job(job, ahead=True)
    limits = TraceLimits(time_limit, rows, since)
    with EpochProgress(first_after_s=_SILENT_S) as progress:
        origin = master.tracing.origin(sink, named, LocalTracer(), checkpoint_at(master, at), limits, progress)
    if output.json:
        output.document(_document(origin), ok=origin.is_proven)
    else:
        _show(origin, output)
    if not origin.is_proven:
        raise typer.Exit(CheckpointError.exit_code)


def _document(origin: RowOrigin) -> dict[str, Any]:
    from milepost.cli.terminal.tables import as_rows

    return {
        "job": origin.job,
        "sink": origin.sink,
        "checkpoint_id": origin.checkpoint_id,
        "row": as_rows(origin.row)[0],
        "copies": origin.copies,
        "epochs": origin.epochs,
        "proven": origin.is_proven,
        "problem": origin.problem,
        "cut": None if origin.cut is None else _cut_document(origin.cut),
        "steps": [{"uid": s.uid, "kind": s.kind, "rows": s.rows, "by": list(s.by)} for s in origin.steps],
        "not_narrowed": list(origin.not_narrowed),
        "late": list(origin.late),
        "inputs": [
            {
                "source": item.source,
                "rows": item.count,
                "listed": [
                    {
                        "object": place.object,
                        "line": place.line,
                        "row": place.row,
                        "message": None if place.message is None else _message(place.message),
                        "checkpoint_id": place.checkpoint_id,
                        "values": values,
                    }
                    for place, values in zip(item.places, as_rows(item.listed), strict=True)
                ],
            }
            for item in origin.inputs
        ],
    }


def _cut_document(cut: OriginCut) -> dict[str, Any]:
    from milepost.cli.terminal.tables import as_rows

    state = {table.name: as_rows(table.rows) for table in cut.state}
    return {"checkpoint_id": cut.checkpoint_id, "reason": cut.reason, "state": state}


def _show(origin: RowOrigin, output: Output) -> None:
    from milepost.cli.terminal.tables import as_rows, text_or_base64

    copies = f", {origin.copies} times" if origin.copies > 1 else ""
    output.text(f"{origin.sink} at checkpoint {origin.checkpoint_id}{copies}")
    (row,) = as_rows(origin.row, text_or_base64)
    output.table([*row], [[*row.values()]], breakable=True)
    if origin.steps:
        output.text()
        output.text(f"back to the input, over {counted(origin.epochs, 'epoch')}")
        steps = [[step.uid, step.kind, step.rows, ", ".join(step.by) or "nothing: every row"] for step in origin.steps]
        output.table(["step", "kind", "rows", "selected by"], steps)
    for item in origin.inputs:
        output.text()
        more = f", the first {len(item.places)}" if item.count > len(item.places) else ""
        output.text(f"input rows of {item.source}: {item.count}{more}")
        _show_input(item, output)
    if origin.cut is not None:
        _show_cut(origin.cut, output)
    output.text()
    for remark in (f"{'proven' if origin.is_proven else 'not proven'}: {origin.verdict}", *origin.notes):
        output.paragraph(remark, "", "")


def _show_cut(cut: OriginCut, output: Output) -> None:
    from milepost.cli.terminal.tables import as_rows, text_or_base64

    output.text()
    output.paragraph(cut.sentence, "", "")
    for table in cut.state:
        output.text()
        output.text(f"state of {table.name} at checkpoint {cut.checkpoint_id}")
        names = table.rows.column_names
        output.table(names, [[*row.values()] for row in as_rows(table.rows, text_or_base64)], breakable=True)


def _show_input(item: OriginInput, output: Output) -> None:
    from milepost.cli.terminal.tables import as_rows, text_or_base64

    if not item.places:
        return
    names, places = item.listed.column_names, [_columns(place) for place in item.places]
    rows = as_rows(item.listed, text_or_base64)
    output.table(
        [*places[0], *names],
        [[*place.values(), *row.values()] for place, row in zip(places, rows, strict=True)],
        breakable=True,
    )


def _columns(place: Place) -> dict[str, object]:
    """Return where a row is, by column of the list."""
    if place.message is not None:
        return {**_message(place.message), "checkpoint": place.checkpoint_id}
    at: dict[str, object] = {"row": place.row} if place.line is None else {"line": place.line}
    return {"object": place.object, **at, "checkpoint": place.checkpoint_id}


def _message(message: tuple[str, int, int]) -> dict[str, object]:
    return dict(zip(("topic", "partition", "offset"), message, strict=True))
