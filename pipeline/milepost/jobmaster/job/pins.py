"""Pins hold a checkpoint while it is read or copied (I8).

The head is read without: it is retained until a newer one is, and then the grace period of deletion protects who reads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.protocol.manifest.transaction.requests import PinRequest, UnpinRequest
from milepost.protocol.records.errors import CheckpointError, EnvironmentUnusable
from milepost.protocol.records.ids import CheckpointId, SessionId
from milepost.protocol.records.manifest_state import ManifestState

_LOG = logging.getLogger(__name__)

HOLD_MS = 6 * 3_600_000
"""A reader that dies without unpinning holds its checkpoint for so long."""


@contextmanager
def pin_for_read(context: JobContext, at: int | None) -> Iterator[None]:
    """Hold checkpoint `at` during the block; None, and the head, need no pin.

    A reader who may not write to the job's store reads without a pin, and is told so: what it reads may be subsumed
    meanwhile, and is deleted no earlier than the grace period after that.

    Raises:
        NotFound: the checkpoint is not retained.
    """
    if at is None or at in (0, context.head().state.timeline().head):
        yield
        return
    session_id = Session.cli().session_id
    request = PinRequest(session_id, session_id, CheckpointId(at), HOLD_MS)
    try:
        context.transact(request)
    except EnvironmentUnusable as error:
        _LOG.warning("checkpoint %d is read without a pin: %s", at, error.message)
        yield
        return
    try:
        yield
    finally:
        _unpin(context, UnpinRequest(session_id, session_id))


@contextmanager
def pin_for_copy(
    context: JobContext, session_id: SessionId, pin: str, checkpoint_id: CheckpointId
) -> Iterator[ManifestState]:
    """Hold a checkpoint, the head too, while all of it is copied; yields the head's state as of the pin.

    Args:
        pin: its name.
    Raises: NotFound: it is not retained. EnvironmentUnusable: this process may not write to the job's store.
    """
    request = PinRequest(session_id, pin, checkpoint_id, HOLD_MS)
    decided = context.transact(request)
    try:
        yield decided.state
    finally:
        _unpin(context, UnpinRequest(session_id, pin))


def _unpin(context: JobContext, request: UnpinRequest) -> None:
    """Let go. What was read is read: a store that does not answer now must not turn it into an error."""
    try:
        context.transact(request)
    except CheckpointError as error:
        _LOG.warning("pin %s stays until its time is over: %s", request.name, error.message)
