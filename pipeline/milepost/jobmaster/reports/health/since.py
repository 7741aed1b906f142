"""Compute when the condition of a job began."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from milepost.codec import OmitNone
from milepost.epoch import iso_ms
from milepost.errors import CheckpointError
from milepost.jobmaster.figures.epoch_rows import EpochRow
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.health.conditions import Condition
from milepost.protocol.log import Tombstone
from milepost.protocol.records import ManifestState


@dataclass(frozen=True, slots=True)
class Since:
    """When something began.

    Attributes:
        checkpoint_id: the checkpoint with which it began; omitted if there is none. time: ISO 8601; omitted if unknown.
        age_ms: milliseconds since `time`, by the store's clock; omitted if `time` is.
    """

    checkpoint_id: OmitNone[int] = None
    time: OmitNone[str] = None
    age_ms: OmitNone[int] = None


def since(now_ms: int, time_ms: int | None, checkpoint_id: int | None = None) -> Since:
    """Return a point in time with its age."""
    if time_ms is None:
        return Since(checkpoint_id)
    return Since(checkpoint_id, iso_ms(time_ms), max(0, now_ms - time_ms))


def failing_since(state: ManifestState | None, aborted: Iterable[EpochRow], now_ms: int) -> Since | None:
    """Return the first failure since the last success or `resume`; None: the last epoch did not fail.

    Args:
        aborted: stored rows of aborted epochs. Without the row of the first failure, its time is unknown.
    """
    if state is None or not state.failures.last_checkpoint:
        return None
    first = int(next(iter(state.failures.counted), state.failures.last_checkpoint))
    ended = (row.end_time for row in aborted if (row.checkpoint_id, row.timeline) == (first, state.live))
    return since(now_ms, next(ended, None), first)


def condition_since(
    condition: Condition, context: JobContext, state: ManifestState | None, now_ms: int
) -> Since | None:
    """Return when a condition that the manifest has began; None: unknown, or the manifest does not have it."""
    known = _CONDITIONS.get(condition)
    return None if state is None or known is None else known(context, state, now_ms)


def _unpublished(context: JobContext, state: ManifestState, now_ms: int) -> Since | None:
    first = next(iter(state.unconfirmed()), None)
    return None if first is None else since(now_ms, first.completed_time_ms, int(first.checkpoint_id))


def _pending(context: JobContext, state: ManifestState, now_ms: int) -> Since | None:
    pending = state.timeline().pending
    return None if pending is None else since(now_ms, pending.trigger_time_ms, int(pending.checkpoint_id))


def _lease_over(context: JobContext, state: ManifestState, now_ms: int) -> Since | None:
    """Return the last heartbeat of the pending checkpoint."""
    pending = state.timeline().pending
    if pending is None:
        return None
    beat_ms = context.heartbeat_ms(pending)
    return since(now_ms, pending.trigger_time_ms if beat_ms is None else beat_ms, int(pending.checkpoint_id))


def _reconciling(context: JobContext, state: ManifestState, now_ms: int) -> Since | None:
    """Return when the switch or realignment was decided that the sinks do not show yet."""
    if state.reconciliation is None:
        return None
    try:
        entry = context.log.event(state.reconciliation.decision)
    except CheckpointError:  # damaged or deleted; the condition is known without it
        return None
    return since(now_ms, entry.at_ms if isinstance(entry, Tombstone) else entry.event.at_ms)


def _ended(context: JobContext, state: ManifestState, now_ms: int) -> Since | None:
    results = [one for one in state.results if one.incarnation == state.incarnation]
    return since(now_ms, results[-1].at_ms) if results else None


_CONDITIONS: Mapping[Condition, Callable[[JobContext, ManifestState, int], Since | None]] = {
    Condition.CANCELLING: _ended,
    Condition.CANCELED: _ended,
    Condition.FINISHED: _ended,
    Condition.RECONCILING: _reconciling,
    Condition.UNPUBLISHED: _unpublished,
    Condition.LEASE_OVER: _lease_over,
    Condition.RUNNING: _pending,
}
