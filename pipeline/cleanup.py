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
from pipeline.protocol.layout import token_of_prefix
from pipeline.protocol.records import CompletedCheckpoint, PendingCheckpoint
from pipeline.protocol.requests import GarbageDeletedRequest, SubsumeRequest
from pipeline.protocol.retention import (
    RetentionPolicy,
    deletable,
    is_discarded,
    minimum_grace_ms,
    subsumable,
    unreferenced,
)
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
    garbage = unreferenced(
        [[*_referenced(context, item)] for item in kept],
        [[*_referenced(context, item), *_own_objects(context, item)] for item in gone],
    )
    request = SubsumeRequest(session_id, policy, dropped, garbage)
    result = context.transact(lambda state, now: coordinator.subsume(state, request, now))
    return dropped if isinstance(result.outcome, Transition) else ()


def delete_garbage(context: JobContext, session_id: SessionId, timeout_ms: int) -> int:
    """Delete what the head lists as garbage and whose grace is over, with what was staged for it at the sinks.

    An entry stays listed while one of its sinks does not answer.
    Returns: the number of deleted objects of the job's own store.
    """
    grace_ms = minimum_grace_ms(timeout_ms)
    state = context.head().state
    deleted = 0
    done = []
    for entry in deletable(state, session_id, context.store.clock_ms(), grace_ms):
        prefix = require_own_prefix(entry.prefix)
        owner = token_of_prefix(prefix)
        if owner is not None and is_discarded(state, *owner) and not _discard(context, *owner):
            continue
        keys = [stat.key for stat in context.store.list(prefix)] if prefix.endswith("/") else [prefix]
        context.store.delete(keys)
        deleted += len(keys)
        done.append(entry.prefix)
    if done:
        request = GarbageDeletedRequest(session_id, tuple(done), grace_ms)
        context.transact(lambda state, now: coordinator.garbage_deleted(state, request, now))
    return deleted


def discard_staged(context: JobContext, pending: PendingCheckpoint) -> None:
    """After an abort: delete what its sinks staged. What cannot be deleted now is deleted with its prefix, later."""
    for token in pending.prefixes:
        _discard(context, pending.checkpoint_id, token)


def discard_losers(
    context: JobContext, checkpoint_id: CheckpointId, prefixes: Iterable[FencingToken], winner: FencingToken
) -> None:
    """After the commit point: delete what the checkpoint's other tries staged at the sinks.

    Args:
        prefixes: every token that may have staged something. winner: the one whose files are published.
    """
    for token in prefixes:
        if token != winner:
            _discard(context, checkpoint_id, token)


def _discard(context: JobContext, checkpoint_id: CheckpointId, token: FencingToken) -> bool:
    """Delete what one token staged that no head refers to. Returns False when a sink could not; that is logged."""
    complete = True
    for spec in context.spec.sinks:
        try:
            context.sink(spec.name).abort(checkpoint_id=checkpoint_id, token=token)
        except CheckpointError as error:
            complete = False
            _LOG.warning(
                "checkpoint %s: what token %s staged at sink %s stays: %s",
                checkpoint_id,
                token,
                spec.name,
                error.message,
            )
    return complete


def _referenced(context: JobContext, checkpoint: CompletedCheckpoint) -> Iterator[str]:
    yield checkpoint.metadata.key
    yield from context.metadata(checkpoint).references()


def _own_objects(context: JobContext, checkpoint: CompletedCheckpoint) -> Iterator[str]:
    for stat in context.store.list(checkpoint_prefix(checkpoint.checkpoint_id)):
        yield stat.key
