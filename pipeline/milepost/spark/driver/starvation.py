"""Warn early if a cluster allocates no executor to a job, long before its timeout."""

from __future__ import annotations

import logging
import threading

from milepost.protocol.records import CheckpointId
from milepost.spark.driver.engines.engine import Engine

WARN_AFTER_S = 15
"""The same delay as Spark's own warning, which is not shown."""

_LOG = logging.getLogger(__name__)


class StarvationWatch:
    """Warn once if jobs still have no executor after `WARN_AFTER_S`. The jobs keep waiting."""

    def __init__(self, engine: Engine, checkpoint_id: CheckpointId) -> None:
        self._engine, self._checkpoint_id = engine, checkpoint_id
        self._timer = threading.Timer(WARN_AFTER_S, self._look)
        self._timer.name, self._timer.daemon = "starvation", True
        self._timer.start()

    def _look(self) -> None:
        why = self._engine.why_starved()
        if why is not None:
            _LOG.warning(
                "checkpoint %s: %s has given it no executor for %s s: %s. It waits on, until its "
                "`checkpointing.timeout` is over",
                self._checkpoint_id, self._engine.name, WARN_AFTER_S, why,
            )  # fmt: skip

    def cancel(self) -> None:
        """Stop the timer after the jobs have ended. Nothing is logged after this returns."""
        self._timer.cancel()
        self._timer.join()
