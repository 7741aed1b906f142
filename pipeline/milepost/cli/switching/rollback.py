"""The command `rollback`. With `--points` it lists the rewind points of a job, and what each rollback would change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from milepost.acts import ROLLBACK
from milepost.cli.terminal.act_command import ActCommand, Call, Instead
from milepost.epoch import counted
from milepost.views import show_bytes, show_count, show_time

if TYPE_CHECKING:
    from milepost.jobmaster import RewindPoint


_MAX_POINTS = 50
"""Number of rewind points that `--points` lists."""


def _show_points(call: Call) -> None:
    """Print a line for each point, with what it would change below it."""
    output = call.output
    points = output.as_typed(call.master.rollbacks.rewind_points(_MAX_POINTS))
    if output.json:
        return output.document({"points": points})
    if not points:
        return output.note("there are no rewind points: the job has not run yet")
    rows = [
        [
            point.checkpoint_id,
            "-" if point.trigger_time is None else show_time(point.trigger_time),
            point.epoch,
            "-" if point.timeline is None else point.timeline if point.live else f"{point.timeline} (not live)",
            point.epochs,
        ]
        for point in points
    ]
    notes = ["; ".join(_changes(point)) for point in points]
    return output.table(["checkpoint", "triggered", "epoch", "timeline", "epochs discarded"], rows, notes=notes)


def _changes(point: RewindPoint) -> Iterator[str]:
    if point.savepoints:
        yield f"savepoint {', '.join(point.savepoints)}"
    if point.refused is not None:
        yield f"cannot be used: {point.refused.error}: {point.refused.message}"
        return
    if point.head:
        yield "the head: nothing would change"
        return
    for name, table in point.tables.items():
        now = "-" if table.rows_now is None else show_count(table.rows_now)
        at_most = "" if table.exact else "at most "
        yield f"{name}: {at_most}{now} -> {show_count(table.rows_then)} rows"
    for name, size in (point.runs_again or {}).items():
        yield f"runs again: {name}: {counted(size.objects, 'object')}, {show_bytes(size.bytes)}"
    for name, size in (point.counts_as_read or {}).items():
        yield f"counts as read: {name}: {counted(size.objects, 'object')}, {show_bytes(size.bytes)}"
    yield from (f"sink {name}: {table}" for name, table in point.other_tables.items())
    yield from (f"the spec does not fit: {line}" for line in point.spec)
    yield from (f"cannot be undone: {line}" for line in point.not_undone)


COMMAND = ActCommand(
    ROLLBACK,
    asks=True,
    plans=True,
    instead=Instead("--points", "List the rewind points, and what each rollback would change.", _show_points),
)
