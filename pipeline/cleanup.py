"""Subsumption and deletion: only what is provably unreachable goes, and only after the manifest said so (I8).

Two phases: a transition lists keys as garbage; a later leader deletes what its own fresh head still lists, after a
grace period longer than any timeout of the job. An unknown outcome keeps the object.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from pipeline.job_context import JobContext
from pipeline.protocol import coordinator
from pipeline.protocol.answers import Transition
from pipeline.protocol.errors import CheckpointError
from pipeline.protocol.ids import CheckpointId, FencingToken, SessionId
from pipeline.protocol.records import CompletedCheckpoint
from pipeline.protocol.requests import GarbageDeletedRequest, SubsumeRequest
from pipeline.protocol.retention import RetentionPolicy, deletable, minimum_grace_ms, subsumable, unreferenced_keys
from pipeline.storage.layout import checkpoint_prefix, require_own_prefix

_LOG = logging.getLogger(__name__)


def subsume_old(context: JobContext, session_id: SessionId) -> tuple[CheckpointId, ...]:
    """Drop the checkpoints that the retention no longer keeps. Returns their ids."""
    policy = RetentionPolicy(context.spec.checkpointing.retained.last)
    state = context.head().state
    dropped = subsumable(state, policy)
    if not dropped:
        return ()
    kept = [item for item in state.checkpoints if item.checkpoint_id not in dropped]
    gone = [item for item in state.checkpoints if item.checkpoint_id in dropped]
    # The input record is what a replay reads: it outlives its checkpoint on the live lineage.
    garbage = unreferenced_keys(
        [[*_referenced(context, item)] for item in kept],
        [[*_referenced(context, item), *_own_objects(context, item)] for item in gone],
    )
    garbage = tuple(key for key in garbage if not any(key == item.plan.key for item in state.checkpoints))
    request = SubsumeRequest(session_id, policy, dropped, garbage)
    result = context.transact(lambda state, now: coordinator.subsume(state, request, now))
    return dropped if isinstance(result.outcome, Transition) else ()


def delete_garbage(context: JobContext, session_id: SessionId, timeout_ms: int) -> int:
    """Delete what the head lists as garbage and whose grace is over. Returns the number of deleted objects."""
    grace_ms = minimum_grace_ms(timeout_ms)
    entries = deletable(context.head().state, session_id, context.store.clock_ms(), grace_ms)
    deleted = 0
    for entry in entries:
        prefix = require_own_prefix(entry.prefix)
        keys = [stat.key for stat in context.store.list(prefix)] if prefix.endswith("/") else [prefix]
        context.store.delete(keys)
        deleted += len(keys)
    if entries:
        request = GarbageDeletedRequest(session_id, tuple(entry.prefix for entry in entries), grace_ms)
        context.transact(lambda state, now: coordinator.garbage_deleted(state, request, now))
    return deleted


def discard_staged(context: JobContext, checkpoint_id: CheckpointId, tokens: Iterable[FencingToken]) -> None:
    """Delete what the sinks staged under tokens that lost: of an aborted checkpoint all, of a completed one the others.

    What cannot be deleted now is unreachable anyway, and is said.
    """
    for spec in context.spec.sinks:
        for token in tokens:
            try:
                context.sink(spec.name).abort(checkpoint_id=checkpoint_id, token=token)
            except CheckpointError as error:
                _LOG.warning("checkpoint %s: staged files of sink %s stay: %s", checkpoint_id, spec.name, error.message)


def _referenced(context: JobContext, checkpoint: CompletedCheckpoint) -> Iterator[str]:
    yield checkpoint.metadata.key
    yield from context.metadata(checkpoint).references()


def _own_objects(context: JobContext, checkpoint: CompletedCheckpoint) -> Iterator[str]:
    for stat in context.store.list(checkpoint_prefix(checkpoint.checkpoint_id)):
        yield stat.key
