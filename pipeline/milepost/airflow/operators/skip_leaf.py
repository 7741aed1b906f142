"""Skip a leaf task of a run after the scheduler has marked it `upstream_failed`.

A leaf that is `upstream_failed` fails the whole run, so a tolerated failure skips it. A skip that comes too early is
lost: the scheduler may have loaded the leaf before, and writes `upstream_failed` over the skip at the end of its loop.
It does not change finished tasks again, so this waits until the leaf is finished:

    scheduler loads subsume (no state) -> we skip it -> scheduler writes upstream_failed: the run fails
    scheduler writes upstream_failed -> we skip it -> subsume stays skipped: the run succeeds
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_random_exponential

from milepost.airflow.compat import DownstreamTasksSkipped

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""Longer than one scheduler loop. A scheduler that is idle has nothing loaded, and will read the skip."""

_MAX_PAUSE_S = 2.0
_FINISHED = ("upstream_failed", "skipped", "success", "failed", "removed")


def skip_request(task_id: str, context: Context) -> DownstreamTasksSkipped:
    """Wait until the scheduler has finished a task of the run. Return the exception to raise, which skips it."""
    run = context["dag_run"]

    def state() -> str | None:
        states = context["ti"].get_task_states(dag_id=run.dag_id, task_ids=[task_id], run_ids=[run.run_id])
        task_state: str | None = states.get(run.run_id, {}).get(task_id)
        return task_state

    poll = Retrying(
        retry=retry_if_result(lambda task_state: task_state not in _FINISHED),
        stop=stop_after_delay(PATIENCE_S),
        wait=wait_random_exponential(multiplier=0.1, max=_MAX_PAUSE_S),
    )
    try:
        poll(state)
    except RetryError:
        log.warning(
            "the scheduler did not mark %s as upstream_failed within %d s; it is skipped anyway. "
            "If this run fails, this is the only reason",
            task_id,
            PATIENCE_S,
        )
    return DownstreamTasksSkipped(tasks=[task_id])
