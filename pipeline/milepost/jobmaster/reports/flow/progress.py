"""How far the running epoch is, as far as the store shows it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from milepost.epoch import iso_ms
from milepost.epoch.timing import COMPLETE
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.history.recent import recent_epochs, usual_duration_ms
from milepost.protocol.records import (
    METRICS_NAME,
    CompletedCheckpoint,
    ManifestState,
    PendingCheckpoint,
    Run,
    heartbeat_key,
    metadata_key,
    token_prefix,
)

_MAX_OBJECTS = 5_000
"""Objects of a running epoch that are listed. An epoch with more of them has its state counted in part."""

_PUBLISHING_MS = 600_000
"""How long after the commit an unpublished checkpoint counts as one that is being published."""

_STATE = re.compile("state/[^/]+/")
_TASK = re.compile(rf"(\d{{1,9}})-(\d{{1,9}})-a\d{{1,9}}{re.escape(COMPLETE)}")


class Stage(StrEnum):
    """What a running epoch does.

    WAITING: no process has begun to work on it. STARTING: its driver runs, and no task has ended. READING, PROCESSING:
    tasks of sources, or of operators, run. CHECKING: the tasks have ended, and the quality gate and the sinks work.
    COMMITTING: its metadata is stored. PUBLISHING: it is committed, and tables do not show it yet.
    """

    WAITING = "waiting"
    STARTING = "starting"
    READING = "reading"
    PROCESSING = "processing"
    CHECKING = "checking"
    COMMITTING = "committing"
    PUBLISHING = "publishing"


@dataclass(frozen=True, slots=True)
class EpochProgress:
    """The running epoch of the live timeline.

    Attributes:
        began: when it was triggered. elapsed_ms: since then, by the store's clock.
        usual_ms: how long nine of ten of the newest `usual_epochs` epochs took at most; None: there are none.
        tries: how many processes have begun it. heartbeat_ms: age of the driver's heartbeat; None: there is none.
        tasks_done: tasks that have stored their measurements, or sinks that show the checkpoint. tasks: of how many.
            Tasks of the last level report to the driver: the store shows them only once all have ended.
        nodes: that it works on now, as far as the ended tasks show. stored: operators with state of this epoch.
    """

    checkpoint_id: int
    epoch: int
    timeline: str
    stage: Stage
    began: str
    elapsed_ms: int
    usual_ms: int | None
    usual_epochs: int
    tries: int
    heartbeat_ms: int | None
    tasks_done: int
    tasks: int
    nodes: tuple[str, ...]
    stored: tuple[str, ...]
    run: Run


def epoch_progress(context: JobContext) -> EpochProgress | None:
    """Return the progress of the running epoch; None: no epoch of the live timeline runs."""
    head = context.log.head()
    if head is None:
        return None
    state, now_ms = head.state, context.store.clock_ms()
    pending = state.timeline().pending
    if pending is not None:
        return _pending(context, state, pending, now_ms)
    newest = state.head()
    if newest is None or not newest.unconfirmed or now_ms - newest.completed_time_ms > _PUBLISHING_MS:
        return None
    return _publishing(context, state, newest, now_ms)


def _pending(context: JobContext, state: ManifestState, pending: PendingCheckpoint, now_ms: int) -> EpochProgress:
    directory = token_prefix(pending.checkpoint_id, pending.token)
    stats = {stat.key.removeprefix(directory): stat for stat in context.store.list(directory, limit=_MAX_OBJECTS)}
    beat = stats.get(heartbeat_key(pending.checkpoint_id, pending.token).removeprefix(directory))
    expected: dict[int, set[int]] = {}
    for task in pending.expected:
        expected.setdefault(task.level, set()).add(task.subtask)
    done = _ended_tasks(stats)
    metadata = metadata_key(pending.checkpoint_id, pending.token).removeprefix(directory)
    level = next((one for one in sorted(expected) if expected[one] - done.get(one, set())), max(expected, default=0))
    if metadata in stats:
        stage = Stage.COMMITTING
    elif any(name.startswith(("consumed/", "contents/")) for name in stats):
        stage = Stage.CHECKING
    elif done or any(name.startswith("state/") for name in stats):
        stage = Stage.PROCESSING if level else Stage.READING
    else:
        stage = Stage.STARTING if beat is not None else Stage.WAITING
    works = stage in (Stage.READING, Stage.PROCESSING)
    usual_ms, usual_epochs = _usual(context, state)
    return EpochProgress(
        checkpoint_id=int(pending.checkpoint_id),
        epoch=int(pending.epoch),
        timeline=state.live,
        stage=stage,
        began=iso_ms(pending.trigger_time_ms),
        elapsed_ms=max(0, now_ms - pending.trigger_time_ms),
        usual_ms=usual_ms,
        usual_epochs=usual_epochs,
        tries=max(1, len(pending.prefixes)),
        heartbeat_ms=None if beat is None else max(0, now_ms - beat.last_modified_ms),
        tasks_done=len(pending.expected)
        if stage in (Stage.CHECKING, Stage.COMMITTING)
        else sum(len(those & done.get(one, set())) for one, those in expected.items()),
        tasks=len(pending.expected),
        nodes=tuple(node.uid for node in context.graph.at_level(level) if node.kind != "static") if works else (),
        stored=tuple(sorted({name.split("/")[1] for name in stats if _STATE.match(name)})),
        run=pending.run,
    )


def _publishing(context: JobContext, state: ManifestState, newest: CompletedCheckpoint, now_ms: int) -> EpochProgress:
    usual_ms, usual_epochs = _usual(context, state)
    return EpochProgress(
        checkpoint_id=int(newest.checkpoint_id),
        epoch=int(newest.epoch),
        timeline=newest.timeline,
        stage=Stage.PUBLISHING,
        began=iso_ms(newest.trigger_time_ms),
        elapsed_ms=max(0, now_ms - newest.trigger_time_ms),
        usual_ms=usual_ms,
        usual_epochs=usual_epochs,
        tries=1,
        heartbeat_ms=None,
        tasks_done=len(newest.sinks) - len(newest.unconfirmed),
        tasks=len(newest.sinks),
        nodes=tuple(newest.unconfirmed),
        stored=(),
        run=newest.run,
    )


def _ended_tasks(names: Collection[str]) -> Mapping[int, set[int]]:
    """Return the subtasks by level that have stored complete measurements: `metrics/0-3-a1.json` is subtask 3."""
    ended: dict[int, set[int]] = {}
    for name in names:
        match = _TASK.fullmatch(name.removeprefix(METRICS_NAME)) if name.startswith(METRICS_NAME) else None
        if match is not None:
            ended.setdefault(int(match[1]), set()).add(int(match[2]))
    return ended


def _usual(context: JobContext, state: ManifestState) -> tuple[int | None, int]:
    """Return how long nine of ten of the newest epochs took at most, and of how many that is known."""
    recent = recent_epochs(context.store, state)
    return usual_duration_ms(recent), sum(epoch.duration_ms is not None for epoch in recent)
