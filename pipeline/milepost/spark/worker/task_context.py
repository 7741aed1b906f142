"""The context of the Spark task that runs in this worker."""

from __future__ import annotations

from pyspark import TaskContext


def current_task_context() -> TaskContext:
    """Return Spark's context of the task in this thread. Call it in a task only."""
    context = TaskContext.get()
    assert context is not None
    return context
