"""`python -m milepost_testkit.airflow.task_imports [--spark]`: what each task of a second epoch imports, by process.

The working directory has the DAG file `dag.py`, and its folder `config` the job `small`. Each task runs in a fork of
this process, which has of Airflow what the supervisor of a task has, and of Milepost nothing. The last line of stdout
says, for each task, which heavy libraries it has imported. Epochs run on Spark only with `--spark`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import airflow.sdk
from airflow.sdk import DAG

from milepost_testkit.airflow.task_runs import InProcessRun

HEAVY = frozenset(
    {"boto3", "confluent_kafka", "deltalake", "dlt", "great_expectations", "grpc", "pandas", "psycopg", "pyiceberg",
     "pyspark", "ruamel", "scipy", "sqlglot"}
)  # fmt: skip
TASKS = ("trigger_checkpoint", "run_epoch", "validate", "complete_checkpoint", "notify_complete", "subsume")


class Epoch:
    """One run of the DAG; what its tasks push is handed from fork to fork."""

    def __init__(self, run_id: str, *, on_spark: bool) -> None:
        self._run_id, self._on_spark = run_id, on_spark
        self._pushed: list[Any] = []
        self.imported: dict[str, list[str]] = {}

    def run(self) -> None:
        for task_id in TASKS:
            self._execute(task_id)

    def _execute(self, task_id: str) -> None:
        def execute() -> Any:
            found: dict[str, Any] = runpy.run_path("dag.py")
            (dag,) = [one for one in found.values() if isinstance(one, DAG) and one.dag_id == "small__epoch"]
            run = InProcessRun(dag, self._run_id)
            run.pushed.update({(task, key): value for (task, key), value in self._pushed})
            with nullcontext() if self._on_spark or task_id != "run_epoch" else _in_process():
                run.execute(task_id)
            return list(run.pushed.items()), sorted({name.split(".")[0] for name in sys.modules} & HEAVY)

        self._pushed, self.imported[task_id] = in_a_fork(execute)
        self._pushed = [(tuple(name), value) for name, value in self._pushed]


def _in_process() -> AbstractContextManager[object]:
    from milepost_testkit.runners.planes import epochs_in_process

    return epochs_in_process()


def in_a_fork(act: Callable[[], Any]) -> Any:
    """Return what a function returns in a fork of this process, by way of JSON."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writer, json.dumps(act()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        told = stream.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError(f"the fork ended with status {status}")
    return json.loads(told)


def main() -> None:
    assert airflow.sdk and not {name for name in sys.modules if name.split(".")[0] in HEAVY}
    for number in (1, 2):
        (Path("landing") / f"{number}.csv").write_text(f"carrier,delay\nAA,{number}\n", encoding="utf-8")
        epoch = Epoch(f"manual__{number}", on_spark="--spark" in sys.argv)
        epoch.run()
    print(json.dumps(epoch.imported))


if __name__ == "__main__":
    main()
