"""Show that an epoch is running, and stop a fenced session (I4, I10).

Safety depends on neither, because no session reads the writes of a fenced one. Both save work. Another session need not
wait for the deadline of a dead one, and an aborted run does not continue to its end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType

from milepost.errors import CheckpointError, Fenced, StoreUnavailable
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.manifest.transaction import HEARTBEAT_INTERVAL_MS, Revocation, revocation
from milepost.protocol.records import PendingCheckpoint, heartbeat_key

_LOG = logging.getLogger(__name__)
_STOP_AGAIN_S = 1.0


class Heartbeat:
    """While its block runs, rewrites the token's heartbeat and reads the head, every ten seconds.

    Once the checkpoint is no longer pending under this token, `stop` is called repeatedly until the block ends, because
    the work to stop may not have started yet. An error that the block then raises is replaced by Fenced.

    Args:
        stop: ends the work of the block, from another thread. interval_s: between two heartbeats.
    """

    def __init__(
        self,
        context: JobContext,
        pending: PendingCheckpoint,
        stop: Callable[[], None],
        interval_s: float = HEARTBEAT_INTERVAL_MS / 1000,
    ) -> None:
        self._context, self._pending, self._stop = context, pending, stop
        self._interval_s = interval_s
        self._key = heartbeat_key(pending.checkpoint_id, pending.token)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self.lost: Revocation | None = None
        """Why this attempt no longer leads; None as long as no read of the head has shown that."""

    def __enter__(self) -> Heartbeat:
        if self._context.store.config.is_local:
            self._context.store.put(self._key, b"{}")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        if isinstance(error, Exception) and not self.lost:
            self.lost = self._lost_by_now()
        if self.lost and isinstance(error, Exception):
            raise Fenced(
                f"checkpoint {self._pending.checkpoint_id}: {self.lost.reason}. This try was stopped; nothing of it is "
                "visible. Do not retry.",
                hint=self.lost.hint,
                checkpoint_id=self._pending.checkpoint_id,
            ) from error

    def _lost_by_now(self) -> Revocation | None:
        """Return the revocation by the head at the end, if any.

        The session that aborted the epoch has deleted its files, which must not be reported as corruption.
        """
        try:
            return revocation(self._context.head().state, self._pending)
        except CheckpointError as error:
            _LOG.warning("checkpoint %s: the head was not read: %s", self._pending.checkpoint_id, error.message)
            return None

    def _first(self) -> None:
        """Write the first heartbeat while the block runs. Until there is one, the lease is judged by its deadline."""
        try:
            self._context.store.put(self._key, b"{}")
        except CheckpointError as error:
            _LOG.warning("checkpoint %s: heartbeat was not written: %s", self._pending.checkpoint_id, error.message)

    def _beat(self) -> None:
        wait_s = self._interval_s
        if not self._context.store.config.is_local:
            self._first()
        while not self._done.wait(wait_s):
            if self.lost:
                self._stop()
                continue
            try:
                self._context.store.put(self._key, b"{}")
                self.lost = revocation(self._context.head().state, self._pending)
            except StoreUnavailable as error:
                _LOG.warning("checkpoint %s: heartbeat was not written: %s", self._pending.checkpoint_id, error.message)
            except CheckpointError:
                _LOG.exception("checkpoint %s: heartbeat stopped", self._pending.checkpoint_id)
                return
            if self.lost:
                _LOG.warning("checkpoint %s: %s; stopping its epoch", self._pending.checkpoint_id, self.lost)
                self._stop()
                wait_s = min(_STOP_AGAIN_S, wait_s)
