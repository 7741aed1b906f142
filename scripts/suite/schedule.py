"""Collect the tests and choose which process runs them: a pytest plugin that tests/conftest.py loads.

Tests that need something expensive, such as the one Airflow or the one JVM, run in the same process. Of the others, one
process runs a whole file. The longest scopes begin first, by the durations that `make durations` recorded.
"""

from __future__ import annotations

import atexit
import gc
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SHARED = {
    "Airflow": ("tests/e2e/",),
    "Spark Connect": (
        "tests/integration/docs/",
        "tests/integration/servers/test_connections",
        "tests/integration/servers/test_spark_connect",
    ),
    "Spark": ("tests/integration/", "tests/chaos/test_workers", "tests/unit/spark/", "tests/unit/testing/on_spark/"),
}
"""What one process runs because it is expensive to start: the one Airflow, a Spark server, the process's own JVM."""

SHARES_NOTHING = (
    "tests/integration/epochs/pace/test_min_pause",
    "tests/integration/epochs/workers/test_new_process",
    "tests/integration/epochs/workers/test_task_imports",
    "tests/integration/faults/test_given_up_epoch",
    "tests/integration/faults/test_interrupt",
    "tests/integration/faults/test_limited_workers",
    "tests/integration/installed/",
    "tests/integration/servers/",
    "tests/integration/tables/",
    "tests/unit/spark/driver/",
)
"""Folders and files whose tests start their own Spark or need none: any process may run them."""

_SCOPES: dict[str, str | None] = {
    **{prefix: name for name, prefixes in SHARED.items() for prefix in prefixes},
    **dict.fromkeys(SHARES_NOTHING),
}
"""Scope by prefix. The longest prefix of a test decides. None: the test's file."""

IN_PROCESS = "[in process"
"""In the name of a test that runs without Spark, and in the deep ring also with it: see the fixture `plane`."""

DURATIONS = Path(__file__).parents[2] / "tests" / "durations.json"
"""Seconds by test file, as `make durations` recorded them. A file that is not in it counts as short."""

GARBAGE_THRESHOLDS = (50_000, 20, 50)
"""Python's garbage collector runs less often than by default, (700, 10, 10): tests leave little garbage in cycles."""


def scope_of(nodeid: str) -> str:
    """Return the unit that one process runs: a shared resource, or else the test's file."""
    file = nodeid.split("::", 1)[0]
    if IN_PROCESS in nodeid:
        return file
    prefix = max(filter(nodeid.startswith, _SCOPES), key=len, default="")
    return _SCOPES.get(prefix) or file


def _unfreeze() -> None:
    gc.disable()
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without Python's garbage collector. Tests and modules live as long as the run, so it would find nothing.

    Freezing them makes each later pass of the garbage collector cheap. They are unfrozen before the interpreter ends,
    because extension modules report objects as leaked that are still there afterwards.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(_unfreeze)
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest scopes, so that the processes of a run end together.

    Files of one scope are in the order of their paths, whatever the order of the arguments: the process that has Spark
    has the master of the first test that starts it.
    """
    seconds: Counter[str] = Counter()
    for file, spent in json.loads(DURATIONS.read_text(encoding="utf-8")).items():
        seconds[scope_of(file)] += spent
    items.sort(key=lambda item: (-seconds[scope_of(item.nodeid)], item.nodeid.split("::", 1)[0]))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return SharedFirst(config, log)


class SharedFirst(LoadScopeScheduling):
    """Hands out whole scopes. A test whose process died has failed: xdist would run it again, up to 16 times."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """Take back the tests of a process that has ended. Returns the test that it was running; None: it ran all."""
        unfinished = {scope: unit for scope, unit in self.assigned_work[node].items() if not all(unit.values())}
        self.assigned_work[node] = unfinished
        ran = next((nodeid for unit in unfinished.values() for nodeid, done in unit.items() if not done), None)
        if ran is not None:
            unfinished[scope_of(ran)][ran] = True
        super().remove_node(node)
        return ran

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Assign a scope to a process, and another if it has one test: xdist runs a test once the next is known."""
        super()._assign_work_unit(node)
        if self._pending_of(self.assigned_work[node]) < 2:
            self._reschedule(node)
