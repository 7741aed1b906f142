"""Discarding deletes what was staged at the sinks and is never published: by aborted epochs, and tries that lost.

Whose the tables are may be found out before the transition that decides it; nothing is deleted before (I9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.job_tables import staging_tables
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.sinks.contract import Sink
from milepost.storage.concurrency.background import prefetch
from milepost.storage.concurrency.parallel_map import parallel_map
from milepost.storage.notices import AbortNotice, write_notice

_LOG = logging.getLogger(__name__)

OwnTables = Callable[[str], tuple[Sink, ...]]
"""Returns a sink, opened for each of its tables in which this job may have staged something; raises what sinks do."""


def find_own_tables(context: JobContext) -> OwnTables:
    """Begin to find the tables beside what the caller does next; return what waits for those of one sink."""
    life = prefetch(context.store, lambda: context.identity, "identity")

    def find(name: str) -> tuple[Sink, ...]:
        return tuple(sink for sink in staging_tables(context, name) if not sink.is_anothers(life()))

    names = [spec.name for spec in context.spec.sinks]
    begun = {name: prefetch(context.store, partial(find, name), "own-tables") for name in names}
    return lambda name: begun[name]()


def discard_staged(context: JobContext, pending: PendingCheckpoint, notice: AbortNotice) -> None:
    """After an abort: tell its Spark jobs that still run, and delete what its sinks staged.

    What cannot be deleted now is deleted with its prefix, later.
    """
    for token in pending.prefixes:
        try:
            write_notice(context.store, pending.checkpoint_id, token, notice)
        except CheckpointError as error:  # a courtesy: fencing protects the data
            _LOG.warning("checkpoint %s: its subtasks were not told: %s", pending.checkpoint_id, error.message)
    for token in pending.prefixes:
        discard(context, pending.checkpoint_id, token)


def discard(
    context: JobContext,
    checkpoint_id: CheckpointId,
    token: FencingToken,
    tables: OwnTables | None = None,
    before_delete: Callable[[], None] = lambda: None,
) -> bool:
    """Delete what one token staged that no head refers to. Returns False when a sink could not; that is logged.

    Args:
        tables: that were looked for before; None: they are now. before_delete: as a sink's `abort` has it.
    """
    own = find_own_tables(context) if tables is None else tables

    def discarded(name: str) -> bool:
        try:
            for sink in own(name):
                sink.abort(checkpoint_id=checkpoint_id, token=token, before_delete=before_delete)
        except CheckpointError as error:
            _LOG.warning(
                "checkpoint %s: what token %s staged at sink %s stays: %s",
                checkpoint_id,
                token,
                name,
                error.message.removeprefix(f"sink {name}: "),
            )
            return False
        return True

    return all(parallel_map(context.store, discarded, [spec.name for spec in context.spec.sinks]))
