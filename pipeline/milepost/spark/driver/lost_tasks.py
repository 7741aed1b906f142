"""Turn lost tasks into an error that names the objects they were reading.

A worker that dies reports nothing. The driver knows the objects of each source subtask, and a retried source attempt
stores incomplete metrics when it starts. If Spark runs each task only once, there are no such metrics, and the error
names no objects.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from milepost.epoch import EpochPlan
from milepost.epoch.timing import INCOMPLETE, attempts_prefix
from milepost.errors import CheckpointError, SubtaskDeclined
from milepost.protocol.records import CheckpointFailureReason
from milepost.sources import ObjectPart
from milepost.spark.task.source_task import SourceSplit
from milepost.storage import metrics_prefix, open_store

_LOG = logging.getLogger(__name__)

_LOST = re.compile(
    r"Task (\d+) in stage \S+ failed (\d+) times.*?(Python worker exited unexpectedly|ExecutorLostFailure)", re.DOTALL
)

_NAMED_OBJECTS = 10

_MEMORY_HINT = (
    "A worker that dies without an error message has usually run out of memory. Set `spark.executor.pyspark.memory` in "
    "`spark.conf`: the worker then stays below that limit and processes its state in parts."
)

_OBJECTS_HINT = "If one of the objects causes it, `limits_per_epoch: {max_files: 1}` shows which."


def lost_task(plan: EpochPlan, splits: Sequence[SourceSplit], error_text: str) -> SubtaskDeclined | None:
    """Return the error for a worker that died too often, or None if Spark's error has another cause.

    Spark's text "Task 3 in stage 1.0 failed 4 times ... Python worker exited unexpectedly" means that the worker of
    task 3 died 4 times. It was reading split 3 if attempt 3 or a later one stored incomplete metrics.

    Args:
        splits: splits of the epoch, by source subtask.
        error_text: the text of Spark's error.
    """
    match = _LOST.search(error_text)
    if match is None:
        return None
    task, times, how = int(match[1]), int(match[2]), match[3]
    what = f"the worker of Spark's task {task} died {times} times ({how})"
    hint = f"{_MEMORY_HINT} {CheckpointFailureReason.TASK_FAILURE.remedy}"
    if _is_reading(plan, splits, task, times - 1):
        what = f"{what} while it read source {splits[task].source}: {_objects(splits[task])}"
        hint = f"{_OBJECTS_HINT} {hint}"
    return SubtaskDeclined(
        f"checkpoint {plan.checkpoint_id}: {what}. Nothing of this epoch is visible.",
        hint=hint,
        reason=CheckpointFailureReason.TASK_FAILURE.value,
        detail=what,
        checkpoint_id=plan.checkpoint_id,
    )


def _is_reading(plan: EpochPlan, splits: Sequence[SourceSplit], task: int, attempt: int) -> bool:
    """Return whether the task is a source subtask that started reading in this attempt or a later one.

    A task of a later stage may have the same index. It starts after that source subtask has read everything, so the
    metrics of its attempt number are missing.
    """
    if task >= len(splits):
        return False
    prefix = metrics_prefix(plan.checkpoint_id, plan.token) + attempts_prefix(0, task)
    try:
        names = [stat.key.removeprefix(prefix) for stat in open_store(plan.job_store).list(prefix)]
        attempts = [int(name.removesuffix(INCOMPLETE)) for name in names if name.endswith(INCOMPLETE)]
        return any(number >= attempt > 0 for number in attempts)
    except CheckpointError as error:  # report the lost task, not this error
        _LOG.warning("checkpoint %s: cannot determine what task %s was reading: %s", plan.checkpoint_id, task, error)
        return False


def _objects(split: SourceSplit) -> str:
    keys = [_name(part) for part in split.parts[:_NAMED_OBJECTS]]
    more = len(split.parts) - len(keys)
    return f"object {', '.join(keys)}" if len(keys) == 1 else ", ".join(keys) + (f" and {more} more" if more else "")


def _name(part: ObjectPart) -> str:
    key = part.object.key
    return key if part.is_whole else f"{key} (bytes {part.start:,} to {part.stop:,} of {part.object.size:,})"
