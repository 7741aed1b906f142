"""Pin a checkpoint while it is read or copied (I8).

The head needs no pin. It is retained until a newer checkpoint completes, and then the grace period of deletion protects
its readers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from milepost.errors import CheckpointError, CommitConflict, EnvironmentUnusable, NotFound
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.session import Session
from milepost.protocol.manifest.transaction import PinRequest, UnpinRequest
from milepost.protocol.records import CheckpointId, ManifestState, SessionId

_LOG = logging.getLogger(__name__)

HOLD_MS = 6 * 3_600_000
"""How long a reader that dies without unpinning holds its checkpoint."""

_RENEWED_MS = HOLD_MS // 4
"""Interval at which a running copy renews its pin."""


@contextmanager
def pin_for_read(context: JobContext, at: int | None) -> Iterator[None]:
    """Pin checkpoint `at` during the block; None and the head need no pin.

    A reader without write access to the job's store reads without a pin, with a warning. The checkpoint may be subsumed
    during it, and its objects are deleted no earlier than the grace period after that.

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
        _LOG.warning("reading checkpoint %d without a pin: %s", at, error.message)
        yield
        return
    try:
        yield
    finally:
        _unpin(context, UnpinRequest(session_id, session_id))


class CopyPin:
    """A pin that is held until a checkpoint is copied completely.

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
        """Renew the pin if that is due. Called for each copied object.

        Raises: CommitConflict: the pin has expired. NotFound: the checkpoint is not retained.
        """
        if monotonic() - self._since_s < _RENEWED_MS / 1000:
            return
        try:
            self._context.transact(self._request, check=self._require_held)
        except (NotFound, CommitConflict):
            raise
        except CheckpointError as error:
            _LOG.warning("cannot renew pin %s yet: %s", self._request.name, error.message)
            return
        self._since_s = monotonic()

    def _require_held(self, state: ManifestState) -> None:
        if all(pin.name != self._request.name for pin in state.pins):
            raise CommitConflict(
                f"the copy of checkpoint {self._request.checkpoint_id} made no progress until its pin expired:"
                " objects that it reads or has written may be deleted. There is no new savepoint.",
                hint="create it again",
            )


@contextmanager
def pin_for_copy(
    context: JobContext, session_id: SessionId, pin: str, checkpoint_id: CheckpointId
) -> Iterator[CopyPin]:
    """Pin a checkpoint, even the head, during the block.

    Args:
        pin: name of the pin.
    Raises: as `CopyPin`.
    """
    copy_pin = CopyPin(context, PinRequest(session_id, pin, checkpoint_id, HOLD_MS))
    try:
        yield copy_pin
    finally:
        _unpin(context, UnpinRequest(session_id, pin))


def _unpin(context: JobContext, request: UnpinRequest) -> None:
    """Unpin. The read has succeeded, so a store error is only logged."""
    try:
        context.transact(request)
    except CheckpointError as error:
        _LOG.warning("cannot remove pin %s, which stays until it expires: %s", request.name, error.message)
