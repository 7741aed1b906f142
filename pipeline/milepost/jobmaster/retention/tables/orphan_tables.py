"""Retain what orphan tables need: tables that a migration, or a rollback past one, left (I8).

The current table shows the head, which is retained. An orphan table still shows the checkpoint at which the sink left
it, and its next move starts from those contents. So their records are retained, even if only an older checkpoint of the
table is. Once no retained checkpoint belongs to the table, the table is emptied by a commit of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.tables.table_references import TableShare
from milepost.jobmaster.retention.tables.tables_of_job import JobTable
from milepost.protocol.log import event_name
from milepost.protocol.manifest.transaction import CheckpointCompleted, RealignmentDecided, TimelineSwitched
from milepost.protocol.records import ManifestState
from milepost.sinks import Sink, TableTarget

_LOG = logging.getLogger(__name__)

_MARKING_EVENTS = {event.__name__ for event in (CheckpointCompleted, TimelineSwitched, RealignmentDecided)}
"""Events whose version is, or may become, the number of a mark."""


def orphan_table_records(
    context: JobContext, state: ManifestState, retained: Collection[TableShare], tables: Iterable[JobTable]
) -> list[str]:
    """Empty the orphan tables that no checkpoint needs, and return the keys of the records that orphan tables show.

    Args:
        retained: tables of the checkpoints that stay. tables: of the job.
    Raises: as the sinks; what a table shows is then unknown.
    """
    keys: list[str] = []
    for table in tables:
        if table.is_current:
            continue
        sink = table.open(context)
        if not is_needed(retained, table):
            empty_orphan_table(context, state, table, sink)
        contents = sink.position().contents
        keys += [handle.key for handle in (contents.records if contents is not None else ())]
    return keys


def is_needed(shares: Iterable[TableShare], table: JobTable) -> bool:
    """Return whether a table is current or one of these checkpoints belongs to it."""
    return table.is_current or any(table.holds(share[table.sink]) for share in shares if table.sink in share)


def empty_orphan_table(context: JobContext, state: ManifestState, table: JobTable, sink: Sink) -> None:
    """Empty a table that no retained checkpoint needs, so that its readers see no rows instead of missing files.

    The commit's number is the version of the head that no longer needs the table. If that version is a decision, which
    the current table may still have to carry, a later head empties it.
    """
    position = sink.position()
    if not position.checkpoint_id or not table.holds(position.contents):
        return
    if event_name(context.log.entry(state.version)) in _MARKING_EVENTS:
        return
    _LOG.info("sink %s: no retained checkpoint needs this table: it is emptied", table.label)
    sink.move(TableTarget(state.version, state.live, None))
