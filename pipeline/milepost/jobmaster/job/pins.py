"""Pins hold a checkpoint while it is read or copied (I8).

The head is read without: it is retained until a newer one is, and then the grace period of deletion protects who reads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from milepost.errors import CheckpointError, CommitConflict, EnvironmentUnusable, NotFound
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.protocol.manifest.transaction.requests import PinRequest, UnpinRequest
from milepost.protocol.records.ids import CheckpointId, SessionId
from milepost.protocol.records.manifest_state import ManifestState

_LOG = logging.getLogger(__name__)

HOLD_MS = 6 * 3_600_000
"""A reader that dies without unpinning holds its checkpoint for so long."""

_RENEWED_MS = HOLD_MS // 4
"""A copy that goes on renews its pin this often."""


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


class CopyHold:
    """A checkpoint that is held for as long as all of it is copied.

    Attributes:
        state: of the head as of the pin.
    """

    def __init__(self, context: JobContext, request: PinRequest) -> None:
        """Pin the checkpoint.

        Raises: NotFound: it is not retained. EnvironmentUnusable: this process may not write to the job's store.
        """
        self._context, self._request = context, request
        self.state = context.transact(request).state
        self._since_s = monotonic()

    def renew(self) -> None:
        """Renew the pin if that is due; called with each object that is copied.

        Raises: CommitConflict: the pin has run out. NotFound: the checkpoint is not retained.
        """
        if monotonic() - self._since_s < _RENEWED_MS / 1000:
            return
        try:
            self._context.transact(self._request, check=self._require_held)
        except (NotFound, CommitConflict):
            raise
        except CheckpointError as error:
            _LOG.warning("pin %s is not held for longer yet: %s", self._request.name, error.message)
            return
        self._since_s = monotonic()

    def _require_held(self, state: ManifestState) -> None:
        if all(pin.name != self._request.name for pin in state.pins):
            raise CommitConflict(
                f"the copy of checkpoint {self._request.checkpoint_id} stood still for longer than that is held for it:"
                " what it reads, or has written, may be garbage by now. There is no new savepoint.",
                hint="create it again",
            )


@contextmanager
def pin_for_copy(
    context: JobContext, session_id: SessionId, pin: str, checkpoint_id: CheckpointId
) -> Iterator[CopyHold]:
    """Hold a checkpoint, the head too, during the block.

    Args:
        pin: its name.
    Raises: as `CopyHold`.
    """
    hold = CopyHold(context, PinRequest(session_id, pin, checkpoint_id, HOLD_MS))
    try:
        yield hold
    finally:
        _unpin(context, UnpinRequest(session_id, pin))


def _unpin(context: JobContext, request: UnpinRequest) -> None:
    """Let go. What was read is read: a store that does not answer now must not turn it into an error."""
    try:
        context.transact(request)
    except CheckpointError as error:
        _LOG.warning("pin %s stays until its time is over: %s", request.name, error.message)
