"""Tables that a migration, or a rollback beyond one, has left: what they carry is kept, until nothing is of them (I8).

The table in force shows the head, which is retained. One that was left goes on showing the checkpoint at which it was
left, whose contents its next move starts from; so their records stay, also when that checkpoint is not retained any
more and an older one is. Once no retained checkpoint is of the table it is emptied, by a commit of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.job_tables import JobTable
from milepost.jobmaster.retention.table_references import TableShare
from milepost.protocol.log.log_entries import event_name
from milepost.protocol.manifest.transaction.events import CheckpointCompleted, RealignmentDecided, TimelineSwitched
from milepost.protocol.records.manifest_state import ManifestState
from milepost.sinks.contract import Sink, TableTarget

_LOG = logging.getLogger(__name__)

_MARKING = {event.__name__ for event in (CheckpointCompleted, TimelineSwitched, RealignmentDecided)}
"""Events whose version is, or may yet become, the number of a mark."""


def records_of_left_tables(
    context: JobContext, state: ManifestState, kept: Collection[TableShare], tables: Iterable[JobTable]
) -> list[str]:
    """Return the keys of the records that tables which are not in force carry; those that nothing is of are emptied.

    Args:
        kept: of the checkpoints that stay. tables: of the job.
    Raises: what the sinks raise: nobody knows what a table carries.
    """
    keys: list[str] = []
    for table in tables:
        if table.in_force:
            continue
        sink = table.open(context)
        if not is_needed(kept, table):
            empty(context, state, table, sink)
        contents = sink.position().contents
        keys += [handle.key for handle in (contents.records if contents is not None else ())]
    return keys


def is_needed(shares: Iterable[TableShare], table: JobTable) -> bool:
    """Return whether one of these checkpoints is of a table, or it is in force."""
    return table.in_force or any(table.holds(share[table.sink]) for share in shares if table.sink in share)


def empty(context: JobContext, state: ManifestState, table: JobTable, sink: Sink) -> None:
    """Let a table that nothing is of show nothing: its own readers see an empty table rather than one whose files go.

    The number of that commit is the version of the head that needs it no more; not where that is the version of a
    decision, which the table in force may have yet to carry. Then the next one does it.
    """
    position = sink.position()
    if not position.checkpoint_id or not table.holds(position.contents):
        return
    if event_name(context.log.entry(state.version)) in _MARKING:
        return
    _LOG.info("sink %s: no retained checkpoint is of it any more: it is emptied", table.label)
    sink.move(TableTarget(state.version, state.live, None))
