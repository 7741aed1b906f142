"""Delete the staged files of aborted epochs and fenced attempts.

The tables may be looked up before the transition that aborts, but nothing is deleted before it (I9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.tables import staging_tables
from milepost.protocol.records import CheckpointId, FencingToken, PendingCheckpoint
from milepost.sinks import Sink
from milepost.storage import AbortNotice, write_notice
from milepost.storage.concurrency import parallel_map, prefetch

_LOG = logging.getLogger(__name__)

OwnTables = Callable[[str], tuple[Sink, ...]]
"""Returns a sink, opened once for each of its tables in which this job may have staged files. Raises as sinks do."""


def prefetch_own_tables(context: JobContext) -> OwnTables:
    """Start looking the tables up in the background. Returns a function that waits for those of one sink."""
    identity = prefetch(context.store, lambda: context.identity, "identity")

    def find(name: str) -> tuple[Sink, ...]:
        return tuple(sink for sink in staging_tables(context, name) if not sink.belongs_to_other(identity()))

    names = [spec.name for spec in context.spec.sinks]
    begun = {name: prefetch(context.store, partial(find, name), "own-tables") for name in names}
    return lambda name: begun[name]()


def discard_staged(context: JobContext, pending: PendingCheckpoint, notice: AbortNotice) -> None:
    """After an abort, notify Spark jobs of the epoch that still run, and delete what its sinks staged.

    Files that cannot be deleted now are deleted later, together with the checkpoint's prefix.
    """
    for token in pending.prefixes:
        try:
            write_notice(context.store, pending.checkpoint_id, token, notice)
        except CheckpointError as error:  # the notice only saves work: fencing protects the data
            _LOG.warning("checkpoint %s: its subtasks were not notified: %s", pending.checkpoint_id, error.message)
    for token in pending.prefixes:
        discard(context, pending.checkpoint_id, token)


def discard(
    context: JobContext,
    checkpoint_id: CheckpointId,
    token: FencingToken,
    tables: OwnTables | None = None,
    before_delete: Callable[[], None] = lambda: None,
) -> bool:
    """Delete what one token staged that no head refers to. Returns False if a sink failed, which is logged.

    Args:
        tables: looked up earlier; None looks them up now. before_delete: as for a sink's `abort`.
    """
    own_tables = prefetch_own_tables(context) if tables is None else tables

    def discard_at(name: str) -> bool:
        try:
            for sink in own_tables(name):
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

    return all(parallel_map(context.store, discard_at, [spec.name for spec in context.spec.sinks]))
