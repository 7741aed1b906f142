"""Measurements of an epoch lie below its token, as far as `_metadata` does not hold them, and go with it.

What tasks measured is in `_metadata` once an epoch is complete; of one that is not it is left here, for who tells of
it. What follows the commit point (commit, notify, subsume) is in one small object per process that did some of it:
nothing depends on it, and writing it may fail.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from milepost.codec.records import decode, encode, from_json
from milepost.epoch.timing.step_clock import StepClock
from milepost.epoch.timing.task_times import COMPLETE, INCOMPLETE, TaskTimes, attempts_prefix
from milepost.errors import CheckpointError, NotFound
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.exchange.acknowledgements import Acknowledgement, SubtaskAnswer
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.storage.concurrency.background import prefetch
from milepost.storage.concurrency.parallel_map import parallel_map
from milepost.storage.layout import after_commit_key, after_commit_prefix, metrics_prefix
from milepost.storage.requests import NO_REQUESTS, StoreRequests, own_put

_LOG = logging.getLogger(__name__)

_NOTIFY = "notify "
_COMMIT = "commit"
_PHASE_OF_STEP = {"validate": _COMMIT, "complete": _COMMIT, "notify": "notify", "subsume": "subsume"}


@dataclass(frozen=True, slots=True)
class PostCommitTimes:
    """What one process measured of an epoch's steps from its commit on.

    Attributes:
        ended_ms: wall clock, ms since the epoch. commit_ms, subsume_ms: None when another process did it.
        notify_ms: by sink. notified_ms: of several that were committed side by side; None: the sum of those.
        requests: to S3, by phase.
    """

    stored_format: ClassVar[str] = "milepost.times/2"

    ended_ms: int
    commit_ms: int | None = None
    notify_ms: dict[str, int] = field(default_factory=dict)
    subsume_ms: int | None = None
    requests: dict[str, StoreRequests] = field(default_factory=dict)
    notified_ms: int | None = None


def post_commit_times(
    clock: StepClock, written_ms: int = 0, unrecorded: StoreRequests = NO_REQUESTS
) -> PostCommitTimes:
    """Return what a clock measured of the steps ``validate``, ``complete``, ``notify`` and ``subsume``; ends its step.

    A step ``notify <sink>`` is of one sink: alone, or as a part of ``notify``.

    Args:
        written_ms: of `_metadata`, which cannot say it itself: part of the commit. unrecorded: requests of the same.
    """
    clock.end()
    steps = clock.steps
    commit_ms = written_ms + clock.ms("validate", "complete") if "complete" in steps else None
    notify_ms = {step.removeprefix(_NOTIFY): ms for step, ms in steps.items() if step.startswith(_NOTIFY)}
    requests = {phase: clock.requests(*named) for phase, named in _steps_of_phases(steps).items()}
    if unrecorded != NO_REQUESTS:
        requests[_COMMIT] = requests.get(_COMMIT, NO_REQUESTS) + unrecorded
    return PostCommitTimes(clock.now_ms, commit_ms, notify_ms, steps.get("subsume"), requests, steps.get("notify"))


def _steps_of_phases(steps: Iterable[str]) -> dict[str, list[str]]:
    """Return the steps of a clock that belong to each phase after the commit point, of those that have one."""
    found: dict[str, list[str]] = {}
    for step in steps:
        phase = _PHASE_OF_STEP.get(step.partition(" ")[0])
        if phase is not None:
            found.setdefault(phase, []).append(step)
    return found


def store_post_commit_times(
    context: JobContext, checkpoint_id: CheckpointId, token: FencingToken, by: str, times: PostCommitTimes
) -> PostCommitTimes:
    """Store what was measured after the commit; one request. Never fails: it is a measurement, and the epoch is done.

    Args:
        by: which step, or steps, of the epoch the process was for; a later try of them replaces it.
    Returns: what was measured, that request among it.
    """
    if times.requests:
        last = [*times.requests][-1]
        times = replace(times, requests={**times.requests, last: times.requests[last] + own_put(context.store)})
    try:
        context.store.put(after_commit_key(checkpoint_id, token, by), encode(times))
    except CheckpointError as error:
        _LOG.warning("checkpoint %s: the times of %s were not kept: %s", checkpoint_id, by, error.message)
    return times


def read_post_commit_times(
    context: JobContext, checkpoint_id: CheckpointId, token: FencingToken
) -> tuple[PostCommitTimes, ...]:
    """Return what was measured after the commit; what cannot be read is left out."""
    found = []
    for stat in context.store.list(after_commit_prefix(checkpoint_id, token)):
        try:
            found.append(decode_post_commit_times(context.store.get(stat.key), stat.key))
        except CheckpointError as error:
            _LOG.warning("checkpoint %s: %s", checkpoint_id, error.message)
    return tuple(found)


def decode_post_commit_times(body: bytes, key: str) -> PostCommitTimes:
    """Return what one process measured after the commit. Raises StateCorrupt: unreadable, or of another format."""
    return decode(PostCommitTimes, body, key)


def task_times(context: JobContext, pending: PendingCheckpoint) -> tuple[TaskTimes, ...]:
    """Return what attempts of a checkpoint's tasks left of what they measured, incomplete ones too.

    Raises what the store does.
    """
    keys = [stat.key for stat in context.store.list(metrics_prefix(pending.checkpoint_id, pending.token))]
    return tuple(parallel_map(context.store, partial(_task_times, context), keys))


def acknowledged_task_times(
    context: JobContext, pending: PendingCheckpoint, subtasks: Iterable[tuple[int, int]]
) -> tuple[TaskTimes, ...]:
    """Return what subtasks that acknowledged left of what they measured, each of its last attempt.

    First attempts are asked for by name, beside a look for those that Spark has made again.
    Args: subtasks: level and subtask of each. Raises what the store does.
    """
    directory = metrics_prefix(pending.checkpoint_id, pending.token)
    attempts = [directory + attempts_prefix(*one) for one in subtasks]
    if not attempts:
        return ()

    def first(of: str) -> TaskTimes | None:
        with suppress(NotFound):
            return _task_times(context, f"{of}0{COMPLETE}")
        return None

    left = prefetch(context.store, lambda: [stat.key for stat in context.store.list(directory)], "attempts")
    firsts = parallel_map(context.store, first, attempts)
    complete = [key for key in left() if not key.endswith(INCOMPLETE)]

    def last(of: str, known: TaskTimes | None) -> TaskTimes | None:
        numbers = [int(key.removeprefix(of).removesuffix(COMPLETE)) for key in complete if key.startswith(of)]
        newest = max(numbers, default=0)
        return _task_times(context, f"{of}{newest}{COMPLETE}") if newest else known

    return tuple(filter(None, map(last, attempts, firsts)))


def _task_times(context: JobContext, key: str) -> TaskTimes:
    return decode(TaskTimes, context.store.get(key), key)


def collect_task_times(
    context: JobContext, pending: PendingCheckpoint, acknowledgements: Sequence[Acknowledgement]
) -> tuple[TaskTimes, ...]:
    """Return what tasks that acknowledged have measured: the last level says it there, others left it in the store.

    Raises what the store does.
    """
    left = acknowledged_task_times(
        context, pending, [(one.level, one.subtask) for one in acknowledgements if not one.measured]
    )
    return tuple(sorted((*left, *_measured_by(acknowledgements)), key=lambda one: (one.level, one.subtask)))


def _measured_by(answers: Iterable[SubtaskAnswer]) -> tuple[TaskTimes, ...]:
    """Return what acknowledgements say that their attempts have measured."""
    texts = [one.measured for one in answers if isinstance(one, Acknowledgement) and one.measured]
    return tuple(from_json(TaskTimes, one, "what a task measured") for one in texts)


def store_task_times(context: JobContext, pending: PendingCheckpoint, answers: Iterable[SubtaskAnswer]) -> None:
    """Store what the acknowledgements of an epoch that will not complete say of times, where `task_times` reads it.

    Never fails: why the epoch does not complete is what has to be told.
    """
    directory = metrics_prefix(pending.checkpoint_id, pending.token)

    def put(one: TaskTimes) -> None:
        context.store.put(f"{directory}{attempts_prefix(one.level, one.subtask)}{one.attempt}{COMPLETE}", encode(one))

    try:
        parallel_map(context.store, put, _measured_by(answers))
    except CheckpointError as error:
        _LOG.info("checkpoint %s: what its tasks measured was not left: %s", pending.checkpoint_id, error.message)


@contextmanager
def store_task_times_on_error(
    context: JobContext, pending: PendingCheckpoint, acknowledgements: Sequence[Acknowledgement]
) -> Iterator[None]:
    """Leave what tasks measured when the block fails."""
    try:
        yield
    except BaseException:
        store_task_times(context, pending, acknowledgements)
        raise
