"""The leaf of a run that is not reached: it is skipped once the scheduler has written that it cannot run.

A leaf that is `upstream_failed` makes the whole run red. The scheduler may have read the leaf before a task skips it,
and writes `upstream_failed` over the skip when its round ends; what is finished it does not look at again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import DownstreamTasksSkipped
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_random_exponential

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""A round of the scheduler is shorter. One that stands still has nothing in hand, and will read the skip."""

_MAX_PAUSE_S = 2.0
_FINISHED = ("upstream_failed", "skipped", "success", "failed", "removed")


def skip_of(task_id: str, context: Context) -> DownstreamTasksSkipped:
    """Return the request to skip this task of the run, to be raised: now that the scheduler is done with the task."""
    run = context["dag_run"]

    def state() -> str | None:
        states = context["ti"].get_task_states(dag_id=run.dag_id, task_ids=[task_id], run_ids=[run.run_id])
        found: str | None = states.get(run.run_id, {}).get(task_id)
        return found

    finished = Retrying(
        retry=retry_if_result(lambda found: found not in _FINISHED),
        stop=stop_after_delay(PATIENCE_S),
        wait=wait_random_exponential(multiplier=0.1, max=_MAX_PAUSE_S),
    )
    try:
        finished(state)
    except RetryError:
        log.warning(
            "the scheduler has not marked %s in %d s, expected upstream_failed; it is skipped all the same. "
            "If this run ends red, that is why: nothing else is amiss with it",
            task_id,
            PATIENCE_S,
        )
    return DownstreamTasksSkipped(tasks=[task_id])
