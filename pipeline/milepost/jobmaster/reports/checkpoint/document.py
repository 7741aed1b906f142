"""Report the outcome of a checkpoint, for people and programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from milepost.codec import OmitNone
from milepost.epoch import iso_ms
from milepost.jobmaster.figures.timings import epoch_duration_ms
from milepost.jobmaster.reports.cost.epoch_cost import MonthCost
from milepost.jobmaster.reports.cost.upsert_price import UpsertPrice
from milepost.jobmaster.reports.job_report import LeaderReport
from milepost.protocol.log import Tombstone
from milepost.protocol.manifest.transaction import CheckpointAborted
from milepost.protocol.records import (
    QUALITY_GATE_REASONS,
    CheckpointFailureReason,
    CheckpointKind,
    CheckpointStatus,
    CompletedCheckpoint,
    Leader,
    ObjectHandle,
    PendingCheckpoint,
    Run,
)

_FIGURES = (
    *("sync_ms", "async_ms", "alignment_ms", "rows_in", "rows_out", "late_rows", "dropped_rows", "bad_records"),
    *("rejected_rows", "quarantined_rows"),
    *("objects", "checkpointed_bytes", "full_bytes", "watermark", "quality"),
)
"""Fields that a report copies from a checkpoint's summary."""


_RUN_AGAIN = "Run again: what it was to read is new input still."
_FIRST_STEPS = {
    CheckpointFailureReason.QUALITY_GATE_FAILED: "Correct the rows where they come from, or the expectation, and run "
    "again.",
    CheckpointFailureReason.QUALITY_GATE_ERROR: "Correct the expectation that raised, and run again.",
    CheckpointFailureReason.CHECKPOINT_EXPIRED: "Give an epoch more time (`checkpointing.timeout`) or less input "
    "(`limits_per_epoch`), and run again.",
    CheckpointFailureReason.SINK_PREPARE_FAILED: "Fix what the sink refused, and run again.",
    CheckpointFailureReason.STATE_CORRUPT: "`milepost verify` shows what is damaged: restore it from a copy, or roll "
    "back to an intact checkpoint.",
    CheckpointFailureReason.ENVIRONMENT_UNUSABLE: "Fix the problem that the message names, and run again.",
}
"""First recovery step per reason, for readers of the report who did not see the error's own hint."""


@dataclass(frozen=True, slots=True)
class Acks:
    """How many subtasks have acknowledged, of how many."""

    received: object = None
    expected: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """One checkpoint. A field is None if it does not apply, or if log compaction removed it.

    Attributes:
        live: whether the live head continues it, or it is pending on the live timeline; None: no longer known.
        meaning, remedy: of `failure_reason`, as text: what happened, and the first recovery step.
        dropped_rows: late rows that no sink publishes.
        rejected_rows: rows that the row rules of sinks refused; quarantined_rows: those of them that were not dropped.
        veto: what the quality gate refused: its handle in the log, or its content.
        airflow: None for a CLI run. sinks: by name, whether its table has the checkpoint.
        compacted: whether the log entry of its end is compacted. savepoints: made of it; only in `show`.
        duration_ms: from the trigger to the publication, or to the abort.
        upsert: cost of the upsert tables; only for the head. month: monthly cost at the spec's prices; likewise.
    """

    checkpoint_id: int
    epoch: int | None
    timeline: str | None = None
    live: bool | None = False
    kind: str = CheckpointKind.CHECKPOINT.value
    status: str
    trigger_time: str | None = None
    duration_ms: int | None = None
    sync_ms: object = None
    async_ms: object = None
    alignment_ms: object = None
    acks: Acks = Acks()
    rows_in: object = None
    rows_out: object = None
    late_rows: object = None
    dropped_rows: object = None
    rejected_rows: OmitNone[object] = None
    quarantined_rows: OmitNone[object] = None
    bad_records: object = None
    objects: object = None
    checkpointed_bytes: object = None
    full_bytes: object = None
    in_flight_bytes: object = None
    unaligned: object = None
    watermark: object = None
    quality: object = None
    failure_reason: str | None = None
    failure_detail: str | None = None
    meaning: OmitNone[str] = None
    remedy: OmitNone[str] = None
    veto: ObjectHandle | Mapping[str, object] | None = None
    leader: LeaderReport | None = None
    airflow: Run | None = None
    code_hash: str | None = None
    spec_hash: str | None = None
    sinks: Mapping[str, str]
    compacted: OmitNone[bool] = None
    savepoints: OmitNone[tuple[str, ...]] = None
    upsert: OmitNone[tuple[UpsertPrice, ...]] = None
    month: OmitNone[MonthCost] = None


def pending_report(pending: PendingCheckpoint, timeline: str, leader: Leader) -> CheckpointReport:
    """Return the report of a pending checkpoint."""
    return CheckpointReport(
        checkpoint_id=int(pending.checkpoint_id),
        epoch=int(pending.epoch),
        timeline=timeline,
        status=CheckpointStatus.PENDING.value,
        trigger_time=iso_ms(pending.trigger_time_ms),
        acks=Acks(0, len(pending.expected)),
        leader=LeaderReport(leader.session_id, int(pending.token), leader.holder),
        airflow=_airflow(pending.run),
        code_hash=pending.code_hash,
        spec_hash=pending.spec_hash,
        sinks={},
    )


def aborted_report(event: CheckpointAborted) -> CheckpointReport:
    """Return the report of an aborted checkpoint.

    The quality gate runs after every subtask has acknowledged, so a veto implies all acknowledgements.
    """
    pending = pending_report(event.pending, event.timeline, event.leader)
    expected = len(event.pending.expected)
    return replace(
        pending,
        acks=Acks(expected, expected) if event.reason in QUALITY_GATE_REASONS else pending.acks,
        status=CheckpointStatus.ABORTED.value,
        duration_ms=event.at_ms - event.pending.trigger_time_ms,
        failure_reason=event.reason.value,
        failure_detail=event.detail,
        meaning=event.reason.meaning,
        remedy=event.reason.remedy or _FIRST_STEPS.get(event.reason, _RUN_AGAIN),
        veto=event.veto,
    )


def completed_report(
    checkpoint: CompletedCheckpoint, status: CheckpointStatus, published: Collection[str]
) -> CheckpointReport:
    """Return the report of a completed checkpoint.

    Args:
        published: the sinks whose table has, or had, what the checkpoint committed.
    """
    summary = checkpoint.summary
    acks = summary.get("acks", 0)
    sinks = {sink: "committed" if sink in published else "unpublished" for sink in checkpoint.sinks}
    sinks |= dict.fromkeys(checkpoint.unconfirmed if status is CheckpointStatus.COMPLETED else (), "unconfirmed")
    figures: dict[str, Any] = {name: summary.get(name) for name in _FIGURES}
    return CheckpointReport(
        checkpoint_id=int(checkpoint.checkpoint_id),
        epoch=int(checkpoint.epoch),
        timeline=checkpoint.timeline,
        status=status.value,
        trigger_time=iso_ms(checkpoint.trigger_time_ms),
        duration_ms=epoch_duration_ms(checkpoint),
        acks=Acks(acks, acks),
        in_flight_bytes=summary.get("in_flight_bytes", 0 if summary else None),
        unaligned=summary.get("unaligned", False if summary else None),
        leader=LeaderReport(checkpoint.session_id, int(checkpoint.token), checkpoint.holder),
        airflow=_airflow(checkpoint.run),
        code_hash=checkpoint.code_hash,
        spec_hash=checkpoint.spec_hash,
        sinks=sinks,
        **figures,
    )


def compacted_report(entry: Tombstone, checkpoint_id: int) -> CheckpointReport:
    """Return the report of a checkpoint with a compacted last log entry."""
    done = entry.completed
    return CheckpointReport(
        checkpoint_id=int(checkpoint_id),
        epoch=None if done is None else int(done.epoch),
        status=(CheckpointStatus.ABORTED if done is None else CheckpointStatus.SUBSUMED).value,
        watermark=None if done is None else done.watermark,
        failure_reason=entry.reason,
        sinks={},
        compacted=True,
    )


def _airflow(run: Run) -> Run | None:
    return run if run.dag_id is not None else None
