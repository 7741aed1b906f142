"""Says early that a cluster leaves a job without an executor, which nothing else would before its time is over."""

from __future__ import annotations

import logging
import threading

from milepost.protocol.records import CheckpointId
from milepost.spark.driver.engines.engine import Engine

WARN_AFTER_S = 15
"""As Spark's own warning, which is not shown."""

_LOG = logging.getLogger(__name__)


class StarvationWatch:
    """Warns once, after `WARN_AFTER_S` and unless it is canceled, that jobs still have no executor; they wait on."""

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
        """The jobs have ended; returns when nothing can be told of them any more."""
        self._timer.cancel()
        self._timer.join()
