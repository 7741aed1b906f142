"""Delivery hands what has landed to who hears of it, in a thread: who is deaf neither fails nor delays an epoch."""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from milepost.storage.manifest_log import Landed

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

PATIENCE_S = 2.0
"""How long an opened job waits, in all, for its transitions to be heard of."""

_MOST = 100
"""Transitions that wait; what comes on top is not told."""


class Delivery:
    """Tells transitions, in their order, to one who hears of them.

    Args:
        tell: may wait and raise; its first error is logged, the others are not. to: who that is, for the log.
    """

    def __init__(self, tell: Callable[[Landed], None], to: str) -> None:
        self._tell, self._to = tell, to
        self._waiting: queue.Queue[Landed] = queue.Queue(_MOST)
        self._left_s = PATIENCE_S
        self._begun: threading.Thread | None = None
        self._untold = 0
        self._all_told = threading.Condition()
        self._complained = False

    def __call__(self, landed: Landed) -> None:
        """Take a transition; neither waits nor raises."""
        with self._all_told:
            self._untold += 1
        try:
            self._waiting.put_nowait(landed)
        except queue.Full:
            self._done()
            self._complain("too many transitions wait to be told")
            return
        if self._begun is None:
            self._begun = threading.Thread(target=self._run, name=f"tells {self._to}", daemon=True)
            self._begun.start()

    def heard(self, use_case: T) -> T:
        """Return a use case that ends when what it did is told, or patience is at its end."""
        call = cast(Callable[..., Any], use_case)

        @functools.wraps(call)
        def told(*args: Any, **options: Any) -> Any:
            try:
                return call(*args, **options)
            finally:
                self._wait()

        return cast(T, told)

    def _wait(self) -> None:
        since = time.monotonic()
        with self._all_told:
            if self._left_s > 0 and not self._all_told.wait_for(lambda: not self._untold, self._left_s):
                self._complain(f"it has not answered within {PATIENCE_S:g} s")
        self._left_s -= time.monotonic() - since

    def _run(self) -> None:
        while True:
            landed = self._waiting.get()
            try:
                self._tell(landed)
            except Exception as error:  # noqa: BLE001 - whatever is wrong there, the job is not
                self._complain(f"{type(error).__name__}: {error}")
            finally:
                self._done()

    def _done(self) -> None:
        with self._all_told:
            self._untold -= 1
            self._all_told.notify_all()

    def _complain(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            _LOG.warning("%s may not hear of all that this job does; the job goes on: %s", self._to, why)
