"""The Spark task that a worker runs."""

from __future__ import annotations

from pyspark import TaskContext


def current_task_context() -> TaskContext:
    """Return what Spark says of the task that runs in this thread; only a task asks."""
    context = TaskContext.get()
    assert context is not None
    return context
