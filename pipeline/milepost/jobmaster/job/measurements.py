"""Store and read the measurements of an epoch that are not in its `_metadata`.

They are stored below the epoch's token and deleted with it:

- Task times. `_metadata` has them once the epoch is complete. Telemetry of an aborted epoch reads them here.
- Times after the commit point (commit, notify, subsume), one small object per process. Nothing depends on them, and
  writing them may fail.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from milepost.codec import decode, encode, from_json
from milepost.epoch.timing import COMPLETE, INCOMPLETE, StepClock, TaskTimes, attempts_prefix
from milepost.errors import CheckpointError, NotFound
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.exchange import Acknowledgement, SubtaskAnswer
from milepost.protocol.records import CheckpointId, FencingToken, PendingCheckpoint
from milepost.storage import NO_REQUESTS, StoreRequests, after_commit_key, after_commit_prefix, metrics_prefix, own_put
from milepost.storage.concurrency import parallel_map, prefetch

_LOG = logging.getLogger(__name__)

_NOTIFY = "notify "
_COMMIT = "commit"
_PHASE_OF_STEP = {"validate": _COMMIT, "complete": _COMMIT, "notify": "notify", "subsume": "subsume"}


@dataclass(frozen=True, slots=True)
class PostCommitTimes:
    """What one process measured of an epoch's steps, from the commit on.

    Attributes:
        ended_ms: wall clock, ms since 1970. commit_ms, subsume_ms: None if another process did the step.
        notify_ms: by sink. notified_ms: wall time of several concurrent sink commits; None: the sum of `notify_ms`.
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
    """Return a clock's times of ``validate``, ``complete``, ``notify`` and ``subsume``. Ends its current step.

    Example: steps ``{"validate": 20, "complete": 30, "notify totals": 40, "subsume": 5}`` give commit_ms 50,
    notify_ms ``{"totals": 40}`` and subsume_ms 5.

    Args:
        written_ms: time to write `_metadata`, which cannot contain it. It counts as part of the commit.
        unrecorded: requests of the same.
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
    """Group a clock's steps by their phase after the commit point; steps without such a phase are left out."""
    by_phase: dict[str, list[str]] = {}
    for step in steps:
        phase = _PHASE_OF_STEP.get(step.partition(" ")[0])
        if phase is not None:
            by_phase.setdefault(phase, []).append(step)
    return by_phase


def with_own_requests(context: JobContext, times: PostCommitTimes, others: StoreRequests) -> PostCommitTimes:
    """Return the times, including the request that stores them, and others that follow the last step."""
    if not times.requests:
        return times
    last = [*times.requests][-1]
    return replace(times, requests={**times.requests, last: times.requests[last] + own_put(context.store) + others})


def store_post_commit_times(
    context: JobContext, checkpoint_id: CheckpointId, token: FencingToken, by: str, times: PostCommitTimes
) -> None:
    """Store the times after the commit, in one request. Errors are only logged: the epoch is complete.

    Args:
        by: the step or steps of the epoch that the process ran. A later try of them replaces the object.
    """
    try:
        context.store.put(after_commit_key(checkpoint_id, token, by), encode(times))
    except CheckpointError as error:
        _LOG.warning("checkpoint %s: cannot store the times of %s: %s", checkpoint_id, by, error.message)


def read_post_commit_times(
    context: JobContext, checkpoint_id: CheckpointId, token: FencingToken
) -> tuple[PostCommitTimes, ...]:
    """Return the times after the commit, without unreadable objects, which are logged."""

    def read(key: str) -> PostCommitTimes | None:
        try:
            return decode_post_commit_times(context.store.get(key), key)
        except CheckpointError as error:
            _LOG.warning("checkpoint %s: %s", checkpoint_id, error.message)
            return None

    keys = [stat.key for stat in context.store.list(after_commit_prefix(checkpoint_id, token))]
    return tuple(times for times in parallel_map(context.store, read, keys) if times is not None)


def decode_post_commit_times(body: bytes, key: str) -> PostCommitTimes:
    """Decode the times of one process. Raises StateCorrupt: unreadable, or of another format."""
    return decode(PostCommitTimes, body, key)


def task_times(context: JobContext, pending: PendingCheckpoint) -> tuple[TaskTimes, ...]:
    """Return the stored times of all task attempts of a checkpoint, incomplete ones too. Raises store errors."""
    keys = [stat.key for stat in context.store.list(metrics_prefix(pending.checkpoint_id, pending.token))]
    return tuple(parallel_map(context.store, partial(_task_times, context), keys))


def acknowledged_task_times(
    context: JobContext, pending: PendingCheckpoint, subtasks: Iterable[tuple[int, int]]
) -> tuple[TaskTimes, ...]:
    """Return the stored times of acknowledged subtasks, each of its last attempt. Raises store errors.

    The objects of first attempts have known names, so they are read while a LIST finds later attempts:

        read  0-0-a0.json, 0-1-a0.json      LIST -> 0-0-a0.json, 0-1-a0.json, 0-1-a1.json
        read  0-1-a1.json                   Spark ran subtask 0-1 again

    Args:
        subtasks: level and subtask of each.
    """
    directory = metrics_prefix(pending.checkpoint_id, pending.token)
    attempts = [directory + attempts_prefix(*subtask) for subtask in subtasks]
    if not attempts:
        return ()

    def first(prefix: str) -> TaskTimes | None:
        with suppress(NotFound):
            return _task_times(context, f"{prefix}0{COMPLETE}")
        return None

    stored_keys = prefetch(context.store, lambda: [stat.key for stat in context.store.list(directory)], "attempts")
    firsts = parallel_map(context.store, first, attempts)
    complete = [key for key in stored_keys() if not key.endswith(INCOMPLETE)]

    def last(prefix: str, first_attempt: TaskTimes | None) -> TaskTimes | None:
        numbers = [int(key.removeprefix(prefix).removesuffix(COMPLETE)) for key in complete if key.startswith(prefix)]
        newest = max(numbers, default=0)
        return _task_times(context, f"{prefix}{newest}{COMPLETE}") if newest else first_attempt

    return tuple(filter(None, map(last, attempts, firsts)))


def _task_times(context: JobContext, key: str) -> TaskTimes:
    return decode(TaskTimes, context.store.get(key), key)


def collect_task_times(
    context: JobContext, pending: PendingCheckpoint, acknowledgements: Sequence[Acknowledgement]
) -> tuple[TaskTimes, ...]:
    """Return the times of acknowledged tasks. Raises store errors.

    The last level sends its times with the acknowledgement. Other levels store them.
    """
    stored = acknowledged_task_times(
        context, pending, [(ack.level, ack.subtask) for ack in acknowledgements if not ack.measured]
    )
    return tuple(sorted((*stored, *_times_in(acknowledgements)), key=lambda times: (times.level, times.subtask)))


def _times_in(answers: Iterable[SubtaskAnswer]) -> tuple[TaskTimes, ...]:
    """Return the times that acknowledgements contain."""
    texts = [answer.measured for answer in answers if isinstance(answer, Acknowledgement) and answer.measured]
    return tuple(from_json(TaskTimes, text, "what a task measured") for text in texts)


def store_task_times(context: JobContext, pending: PendingCheckpoint, answers: Iterable[SubtaskAnswer]) -> None:
    """Store the times in the acknowledgements of an epoch that will be aborted, for `task_times`.

    Store errors are only logged, because the reason for the abort is the error to report.
    """
    directory = metrics_prefix(pending.checkpoint_id, pending.token)

    def put(times: TaskTimes) -> None:
        context.store.put(
            f"{directory}{attempts_prefix(times.level, times.subtask)}{times.attempt}{COMPLETE}", encode(times)
        )

    try:
        parallel_map(context.store, put, _times_in(answers))
    except CheckpointError as error:
        _LOG.info("checkpoint %s: cannot store the times of its tasks: %s", pending.checkpoint_id, error.message)


@contextmanager
def store_task_times_on_error(
    context: JobContext, pending: PendingCheckpoint, acknowledgements: Sequence[Acknowledgement]
) -> Iterator[None]:
    """Store task times if the block fails."""
    try:
        yield
    except BaseException:
        store_task_times(context, pending, acknowledgements)
        raise
