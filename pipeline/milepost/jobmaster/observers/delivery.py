"""Deliver transitions to an observer on a background thread.

A failing observer never fails an epoch. A slow one delays a process by at most `PATIENCE_S`, and once more at exit.
"""

from __future__ import annotations

import atexit
import logging
import queue
import re
import threading
import time
from collections.abc import Callable

from milepost.storage.log import LandedTransition

_LOG = logging.getLogger(__name__)

PATIENCE_S = 2.0
"""How long a job waits for the delivery of its transitions: in total over all its use cases, and once more at exit.

Airflow's tasks end without running exit handlers, so each use case waits at its end.
"""

_CREDENTIALS = re.compile(r"//[^/@\s]*@")
"""Credentials in a URL. Libraries quote URLs in their errors."""

_MAX_QUEUED = 100
"""Maximum number of queued transitions. Further ones are dropped."""


class Delivery:
    """Sends transitions to one observer, in order.

    Args:
        send: may block and raise. Only its first error is logged. to: the observer's name, for the log.
    """

    def __init__(self, send: Callable[[LandedTransition], None], to: str) -> None:
        self._send, self._to = send, to
        self._queue: queue.Queue[LandedTransition] = queue.Queue(_MAX_QUEUED)
        self._patience_s = PATIENCE_S
        self._is_started = False
        self._undelivered = 0
        self._delivered = threading.Condition()
        self._has_warned = False

    def __call__(self, landed: LandedTransition) -> None:
        """Queue a transition. Neither blocks nor raises."""
        with self._delivered:
            try:
                if not self._is_started:
                    threading.Thread(target=self._run, name=f"delivers to {self._to}", daemon=True).start()
                    atexit.register(self._wait, PATIENCE_S)
                    self._is_started = True
                self._queue.put_nowait(landed)
                self._undelivered += 1
            except (queue.Full, RuntimeError) as error:  # RuntimeError: no thread can be started at exit
                self._warn_once(f"a transition cannot be sent: {type(error).__name__}")

    def wait(self, _failure: BaseException | None = None) -> None:
        """Wait at the end of a use case until its transitions are delivered, or the patience is used up."""
        since = time.monotonic()
        self._wait(self._patience_s)
        self._patience_s -= time.monotonic() - since

    def _wait(self, timeout_s: float) -> None:
        with self._delivered:
            if timeout_s > 0 and not self._delivered.wait_for(lambda: not self._undelivered, timeout_s):
                self._warn_once(f"it has not answered within {PATIENCE_S:g} s")

    def _run(self) -> None:
        while True:
            landed = self._queue.get()
            try:
                self._send(landed)
            except Exception as error:  # noqa: BLE001 - an observer's fault must not affect the job
                self._warn_once(f"{type(error).__name__}: {_CREDENTIALS.sub('//', str(error))}")
            with self._delivered:
                self._undelivered -= 1
                self._delivered.notify_all()

    def _warn_once(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning("%s may not receive all events of this job; the job continues: %s", self._to, reason)
