"""Delivery hands what has landed to who hears of it, in a thread: who is deaf neither fails nor delays an epoch."""

from __future__ import annotations

import atexit
import logging
import queue
import re
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from milepost.jobmaster.observers.use_case_end import followed_by
from milepost.storage.log.records import LandedTransition

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

PATIENCE_S = 2.0
"""How long an opened job waits for its transitions to be heard of: in all while it works, and once more at exit.

Processes that end without an exit, as Airflow's tasks do, have waited at the end of each use case.
"""

_CREDENTIALS = re.compile(r"//[^/@\s]*@")
"""What a URL, which libraries quote, may hold before its host."""

_MOST = 100
"""Transitions that wait; what comes on top is not told."""


class Delivery:
    """Tells transitions, in their order, to one who hears of them.

    Args:
        tell: may wait and raise; its first error is logged, the others are not. to: who that is, for the log.
    """

    def __init__(self, tell: Callable[[LandedTransition], None], to: str) -> None:
        self._tell, self._to = tell, to
        self._waiting: queue.Queue[LandedTransition] = queue.Queue(_MOST)
        self._left_s = PATIENCE_S
        self._begun = False
        self._untold = 0
        self._all_told = threading.Condition()
        self._complained = False

    def __call__(self, landed: LandedTransition) -> None:
        """Take a transition; neither waits nor raises."""
        with self._all_told:
            try:
                if not self._begun:
                    threading.Thread(target=self._run, name=f"tells {self._to}", daemon=True).start()
                    atexit.register(self._wait, PATIENCE_S)
                    self._begun = True
                self._waiting.put_nowait(landed)
                self._untold += 1
            except (queue.Full, RuntimeError) as error:  # such as no thread can be started any more
                self._complain(f"a transition cannot be told: {type(error).__name__}")

    def heard(self, use_case: T) -> T:
        """Return a use case that ends when what it did is told, or patience is at its end."""
        return followed_by(use_case, self._spend_patience)

    def _spend_patience(self, failure: BaseException | None) -> None:
        since = time.monotonic()
        self._wait(self._left_s)
        self._left_s -= time.monotonic() - since

    def _wait(self, most_s: float) -> None:
        with self._all_told:
            if most_s > 0 and not self._all_told.wait_for(lambda: not self._untold, most_s):
                self._complain(f"it has not answered within {PATIENCE_S:g} s")

    def _run(self) -> None:
        while True:
            landed = self._waiting.get()
            try:
                self._tell(landed)
            except Exception as error:  # noqa: BLE001 - whatever is wrong there, the job is not
                self._complain(f"{type(error).__name__}: {_CREDENTIALS.sub('//', str(error))}")
            with self._all_told:
                self._untold -= 1
                self._all_told.notify_all()

    def _complain(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            _LOG.warning("%s may not hear of all that this job does; the job goes on: %s", self._to, why)
