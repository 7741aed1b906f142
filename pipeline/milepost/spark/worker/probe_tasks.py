"""Tasks that probe an executor's Python before an epoch.

They are pickled by value, because the executor may not have Milepost. So each function imports what it needs when it
runs, and uses nothing else of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Batches = Iterator[Any]


def environment_probe(libraries: tuple[str, ...]) -> Callable[[Batches], Batches]:
    """Return a task that reports missing libraries, the result of `task_check` and the address space limit."""

    def ask(batches: Batches) -> Batches:
        import importlib.util
        import json
        import resource
        import socket
        import sys

        import pyarrow

        for _ in batches:
            pass
        answer: dict[str, Any] = {"host": socket.gethostname(), "python": sys.executable, "code": None, "failed": None}
        limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
        answer["limit_bytes"] = None if limit_bytes == resource.RLIM_INFINITY else limit_bytes
        answer["missing"] = [name for name in libraries if importlib.util.find_spec(name) is None]
        if not answer["missing"]:
            try:
                for name in ("milepost.spark.driver.epoch_graph", "milepost.spark.driver.executors.task_check"):
                    importlib.import_module(name)
                sys.modules["milepost.spark.driver.executors.task_check"].work_as_tasks_do()
                answer["code"] = sys.modules["milepost.epoch.code_hash"].CODE_HASH
            except Exception as error:  # noqa: BLE001 - whatever a library raises is the answer
                answer["failed"] = f"{type(error).__name__}: {error}"
        yield pyarrow.record_batch({"subtask": pyarrow.array([0], pyarrow.int32()), "answer": [json.dumps(answer)]})

    return ask


def identity_task(batches: Batches) -> Batches:
    """Return the rows unchanged: the task after the exchange."""
    yield from batches
