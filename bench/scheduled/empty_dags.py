"""DAGs of six tasks that return immediately: Airflow's own cost for the shape of an epoch.

A file of the benchmark's DAG folder; it makes as many as `MILEPOST_BENCH_EMPTIES` says.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG, BaseOperator, CronTriggerTimetable


class Empty(BaseOperator):
    """Runs in a worker, and returns immediately. (Airflow never starts a task for its own `EmptyOperator`.)"""

    def execute(self, context: object) -> None:
        return None


TASKS = 6
_cron = os.environ.get("MILEPOST_BENCH_CRON")

for number in range(int(os.environ.get("MILEPOST_BENCH_EMPTIES", "1"))):
    with DAG(
        dag_id=f"empty_{number:02d}",
        schedule=CronTriggerTimetable(_cron, timezone="UTC") if _cron else None,
        start_date=datetime(2020, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
    ) as made:
        before = None
        for task in range(TASKS):
            one = Empty(task_id=f"task_{task}")
            if before is not None:
                before >> one
            before = one
    globals()[made.dag_id] = made
