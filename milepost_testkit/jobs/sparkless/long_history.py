"""A job that looks as if it had completed many epochs, all of them retained: what reads it cannot tell.

Each has a copy of the metadata, the plan and the figures of the newest real one; the log has a completion for each, and
says of none when its sinks had it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from milepost.jobmaster.job.context import JobContext
from milepost.protocol.log.entry_codec import encode_entry
from milepost.protocol.log.log_entries import LogEntry
from milepost.protocol.manifest.transaction.events import CheckpointCompleted
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.ids import CheckpointId, Epoch, FencingToken
from milepost.protocol.records.layout import manifest_key, metadata_key
from milepost.protocol.records.manifest_state import ManifestState
from milepost.storage.concurrency.thread_pools import parallel_map


def prolong_history(context: JobContext, checkpoints: int, retained: int | None = None) -> None:
    """Let the newest checkpoint of a job's one timeline have this number, as if an epoch had made each before it.

    Args:
        retained: how many of the new checkpoints are retained; None: all.
    """
    state = context.head().state
    older = list(_older(state, checkpoints, retained))
    entries = [_entry(state, one) for one in older]
    newest = replace(
        state,
        version=older[-1].version,
        checkpoints=(*state.checkpoints, *older),
        timelines=(replace(state.timeline(), head=older[-1].checkpoint_id),),
        next_checkpoint_id=CheckpointId(older[-1].checkpoint_id + 1),
    )
    entries[-1] = replace(entries[-1], state=newest)
    body = context.store.get(state.checkpoints[-1].metadata.key)
    parallel_map(context.store, lambda one: context.store.put(one.metadata.key, body), older)
    parallel_map(context.store, lambda one: context.store.put(manifest_key(one.version), encode_entry(one)), entries)


def _older(state: ManifestState, checkpoints: int, retained: int | None) -> Iterator[CompletedCheckpoint]:
    real = replace(state.checkpoints[-1], unconfirmed=())
    first = max(real.checkpoint_id, 0 if retained is None else checkpoints - retained) + 1
    for version, number in enumerate(range(first, checkpoints + 1), state.version + 1):
        key = metadata_key(CheckpointId(number), FencingToken(version))
        yield replace(
            real,
            metadata=replace(real.metadata, key=key),
            checkpoint_id=CheckpointId(number),
            epoch=Epoch(number),
            parent=CheckpointId(number - 1),
            token=FencingToken(version),
            version=version,
        )


def _entry(state: ManifestState, checkpoint: CompletedCheckpoint) -> LogEntry:
    """Return the event of a completion. Its state is outdated, which no reader of events uses."""
    event = CheckpointCompleted(checkpoint.completed_time_ms, checkpoint, None)
    return LogEntry(checkpoint.version, "prolonged", event, replace(state, version=checkpoint.version))
