"""Cancel an epoch's Spark job at its timeout. Runs without Airflow end too."""

from __future__ import annotations

import threading

from milepost.spark.driver.engines.engine import Engine

REPEAT_S = 1.0
"""A cancellation reaches only running jobs. Repeat it to cancel a job that starts a moment later.

With `timeout_ms=5000` the first cancellation is sent after 5 s, then one after 6 s, 7 s and so on.
"""


class Deadline:
    """Cancel the jobs with a tag from `timeout_ms` on, until `cancel` is called.

    Attributes:
        passed: whether the timeout has passed. A job that was cancelled is then an expired checkpoint.
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
        """Stop the timer after the job has ended. No cancellation is sent after this returns."""
        self._done.set()
        self._thread.join()
