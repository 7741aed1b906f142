"""The command `backfill`. With `--dispose` it discards unfinished backfills instead."""

from __future__ import annotations

from milepost.acts import BACKFILL
from milepost.cli.terminal.act_command import ActCommand, Call, Instead
from milepost.cli.terminal.confirmation import confirmed
from milepost.errors import InvalidRequest


def _dispose(call: Call) -> None:
    output = call.output
    if call.dry_run or any(call.form[name] is not None for name in ("from", "to", "from_checkpoint")):
        raise InvalidRequest("--dispose cannot be combined with options of a backfill. Nothing was changed.")
    job = call.master.job.spec.name
    if not confirmed(f"Discard all unfinished backfills of {job}? Their work is lost.", call.yes, output):
        return output.note("nothing was changed")
    result = call.master.backfills.dispose()
    if output.json:
        return output.document(result)
    disposed = ", ".join(result.disposed)
    return output.text(f"discarded: {disposed}" if disposed else f"job {job} has no unfinished backfill")


COMMAND = ActCommand(
    BACKFILL,
    asks=True,
    plans=True,
    is_long=True,
    instead=Instead("--dispose", "Stop this job's unfinished backfills and discard their work.", _dispose),
)
