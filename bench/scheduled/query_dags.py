"""DAGs of one task that runs a query of Structured Streaming: what a team writes in place of a job.

A file of the benchmark's DAG folder; `MILEPOST_BENCH_QUERIES` says which.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime

from airflow.sdk import DAG, BaseOperator


class AvailableNow(BaseOperator):
    """Runs the query over what is new, in a process of its own as `spark-submit` is one."""

    def __init__(self, *, words: list, served: bool, **kwargs) -> None:
        super().__init__(**kwargs)
        self.words, self.served = words, served

    def execute(self, context: object) -> None:
        remote = os.environ["MILEPOST_SPARK_REMOTE"] if self.served else None
        environ = {name: value for name, value in os.environ.items() if self.served or not name.startswith("SPARK_")}
        words = json.dumps([*self.words, remote])
        subprocess.run([sys.executable, "-m", "bench.systems.available_now", words], check=True, env=environ)


for name, query in json.loads(os.environ.get("MILEPOST_BENCH_QUERIES", "{}")).items():
    with DAG(
        dag_id=name,
        schedule=None,
        start_date=datetime(2020, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
    ) as made:
        AvailableNow(task_id="query", **query)
    globals()[name] = made
