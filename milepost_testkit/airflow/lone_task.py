"""`python -m milepost_testkit.airflow.lone_task TASK`: run one task of an epoch in its own process.

Of the others it gets what Airflow hands on, on stdin: the run, its XComs, and what a mapped task is mapped over. The
last line of stdout is the XComs of the run after it. The DAG file is `dag.py` of the working directory.
"""

from __future__ import annotations

import json
import runpy
import sys
from typing import Any

from airflow.sdk import DAG

from milepost_testkit.airflow.task_runs import InProcessRun


def main() -> None:
    (task_id,), asked = sys.argv[1:], json.load(sys.stdin)
    found: dict[str, Any] = runpy.run_path("dag.py")
    (dag,) = [value for value in found.values() if isinstance(value, DAG) and value.dag_id == asked["dag_id"]]
    run = InProcessRun(dag, asked["run_id"])
    run.pushed.update({(pushed["task"], pushed["key"]): pushed["value"] for pushed in asked["xcoms"]})
    run.execute(task_id, **asked["mapped"])
    print(json.dumps([{"task": task, "key": key, "value": value} for (task, key), value in run.pushed.items()]))


if __name__ == "__main__":
    main()
