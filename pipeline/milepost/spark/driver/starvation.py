"""Says early that a cluster leaves a job without an executor, which nothing else would before its time is over."""

from __future__ import annotations

import logging
import threading

from milepost.protocol.records.ids import CheckpointId
from milepost.spark.driver.engines.engine import Engine

TOLD_AFTER_S = 15
"""As Spark's own warning, which is not shown."""

_LOG = logging.getLogger(__name__)


class StarvationWatch:
    """Warns once where jobs that wait since `TOLD_AFTER_S` have no executor, unless it is canceled; they go on."""

    def __init__(self, engine: Engine, checkpoint_id: CheckpointId) -> None:
        self._engine, self._checkpoint_id = engine, checkpoint_id
        self._timer = threading.Timer(TOLD_AFTER_S, self._look)
        self._timer.name, self._timer.daemon = "starvation", True
        self._timer.start()

    def _look(self) -> None:
        elsewhere = self._engine.starved()
        if elsewhere is not None:
            _LOG.warning(
                "checkpoint %s: %s has given it no executor for %s s: %s. It waits on, until its "
                "`checkpointing.timeout` is over",
                self._checkpoint_id, self._engine.name, TOLD_AFTER_S, elsewhere,
            )  # fmt: skip

    def cancel(self) -> None:
        """The jobs have ended; returns when nothing can be told of them any more."""
        self._timer.cancel()
        self._timer.join()
