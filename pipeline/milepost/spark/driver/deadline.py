"""Ends an epoch's Spark job when its time is over, so that a run without Airflow ends too."""

from __future__ import annotations

import threading

from milepost.spark.driver.engines.engine import Engine

REPEAT_S = 1.0
"""A cancellation reaches only jobs that exist: one that starts a moment later is cancelled by the next."""


class Deadline:
    """Cancels the jobs of a tag from `timeout_ms` on, until it is cancelled itself.

    Attributes:
        passed: whether the time was over, and so a cancelled job is an expired checkpoint.
    """

    def __init__(self, engine: Engine, tag: str, timeout_ms: int) -> None:
        self._engine, self._tag = engine, tag
        self._timeout_s = timeout_ms / 1000
        self._done = threading.Event()
        self.passed = False
        self._thread = threading.Thread(target=self._watch, name="deadline", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        wait_s = self._timeout_s
        while not self._done.wait(wait_s):
            self.passed = True
            self._engine.interrupt(self._tag)
            wait_s = REPEAT_S

    def cancel(self) -> None:
        """The job has ended; returns when no further cancellation can follow."""
        self._done.set()
        self._thread.join()
