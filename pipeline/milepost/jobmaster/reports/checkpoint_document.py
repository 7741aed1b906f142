"""The documents of INTERFACE section 2: what people and programs read of one checkpoint, whatever became of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from milepost.epoch.iso_times import iso_ms
from milepost.protocol.codec.log_entries import Tombstone
from milepost.protocol.codec.records import to_json
from milepost.protocol.manifest.transaction.events import CheckpointAborted
from milepost.protocol.records.checkpoints import (
    CheckpointKind,
    CheckpointStatus,
    CompletedCheckpoint,
    Holder,
    ObjectHandle,
    PendingCheckpoint,
    Run,
)
from milepost.protocol.records.ids import SessionId

_NOT_KEPT = (
    *("timeline", "trigger_time", "duration_ms", "sync_ms", "async_ms", "alignment_ms", "rows_in", "rows_out"),
    *("late_rows", "objects", "checkpointed_bytes", "full_bytes", "in_flight_bytes", "unaligned", "quality"),
    *("failure_detail", "veto", "leader", "airflow", "code_hash", "spec_hash"),
)
"""What a document says of a checkpoint, and a compacted log does not."""


def leader_document(session_id: SessionId, token: int, holder: Holder) -> dict[str, Any]:
    return {"session_id": session_id, "token": token, "holder": to_json(holder)}


def _common(
    *,
    checkpoint_id: int,
    epoch: int,
    timeline: str,
    status: CheckpointStatus,
    trigger_time_ms: int,
    duration_ms: int | None,
    leader: dict[str, Any],
    run: Run,
    code_hash: str,
    spec_hash: str,
    expected: int,
    failure_reason: str | None,
    failure_detail: str | None,
    sinks: dict[str, str],
    summary: dict[str, Any] | None = None,
    veto: ObjectHandle | None = None,
) -> dict[str, Any]:
    """The document of INTERFACE section 2; figures that a checkpoint never had are None."""
    figures = summary or {}
    airflow = to_json(run) if run.dag_id is not None else None
    return {
        "checkpoint_id": int(checkpoint_id),
        "epoch": int(epoch),
        "timeline": timeline,
        "live": False,
        "kind": CheckpointKind.CHECKPOINT.value,
        "status": status.value,
        "trigger_time": iso_ms(trigger_time_ms),
        "duration_ms": duration_ms,
        "sync_ms": figures.get("sync_ms"),
        "async_ms": figures.get("async_ms"),
        "alignment_ms": figures.get("alignment_ms"),
        "acks": {"received": figures.get("acks", 0), "expected": expected},
        "rows_in": figures.get("rows_in"),
        "rows_out": figures.get("rows_out"),
        "late_rows": figures.get("late_rows"),
        "objects": figures.get("objects"),
        "checkpointed_bytes": figures.get("checkpointed_bytes"),
        "full_bytes": figures.get("full_bytes"),
        "in_flight_bytes": figures.get("in_flight_bytes", 0 if figures else None),
        "unaligned": figures.get("unaligned", False if figures else None),
        "watermark": figures.get("watermark"),
        "quality": figures.get("quality"),
        "failure_reason": failure_reason,
        "failure_detail": failure_detail,
        "veto": to_json(veto),
        "leader": leader,
        "airflow": airflow,
        "code_hash": code_hash,
        "spec_hash": spec_hash,
        "sinks": sinks,
    }


def pending_document(pending: PendingCheckpoint, timeline: str, leader: dict[str, Any]) -> dict[str, Any]:
    return _common(
        checkpoint_id=pending.checkpoint_id,
        epoch=pending.epoch,
        timeline=timeline,
        status=CheckpointStatus.PENDING,
        trigger_time_ms=pending.trigger_time_ms,
        duration_ms=None,
        leader=leader,
        run=pending.run,
        code_hash=pending.code_hash,
        spec_hash=pending.spec_hash,
        expected=len(pending.expected),
        failure_reason=None,
        failure_detail=None,
        sinks={},
    )


def completed_document(
    checkpoint: CompletedCheckpoint, status: CheckpointStatus, published: Collection[str]
) -> dict[str, Any]:
    """Args: published: the sinks whose table has, or had, what the checkpoint committed."""
    summary = dict(checkpoint.summary)
    sinks = {sink: "committed" if sink in published else "unpublished" for sink in checkpoint.sinks}
    sinks |= dict.fromkeys(checkpoint.unconfirmed if status is CheckpointStatus.COMPLETED else (), "unconfirmed")
    return _common(
        checkpoint_id=checkpoint.checkpoint_id,
        epoch=checkpoint.epoch,
        timeline=checkpoint.timeline,
        status=status,
        trigger_time_ms=checkpoint.trigger_time_ms,
        duration_ms=checkpoint.completed_time_ms - checkpoint.trigger_time_ms,
        leader=leader_document(checkpoint.session_id, checkpoint.token, checkpoint.holder),
        run=checkpoint.run,
        code_hash=checkpoint.code_hash,
        spec_hash=checkpoint.spec_hash,
        expected=int(str(summary.get("acks", 0))),
        failure_reason=None,
        failure_detail=None,
        sinks=sinks,
        summary=summary,
    )


def compacted_document(entry: Tombstone, checkpoint_id: int) -> dict[str, Any]:
    """Of a checkpoint whose end the log has compacted: what is not known any more is None."""
    done = entry.completed
    status = CheckpointStatus.ABORTED if done is None else CheckpointStatus.SUBSUMED
    return dict.fromkeys(_NOT_KEPT) | {
        "checkpoint_id": int(checkpoint_id),
        "epoch": None if done is None else int(done.epoch),
        "live": False,
        "kind": CheckpointKind.CHECKPOINT.value,
        "status": status.value,
        "watermark": None if done is None else done.watermark,
        "acks": {"received": None, "expected": None},
        "failure_reason": entry.reason,
        "sinks": {},
        "compacted": True,
    }


def aborted_document(event: CheckpointAborted) -> dict[str, Any]:
    pending = event.pending
    return _common(
        checkpoint_id=pending.checkpoint_id,
        epoch=pending.epoch,
        timeline=event.timeline,
        status=CheckpointStatus.ABORTED,
        trigger_time_ms=pending.trigger_time_ms,
        duration_ms=event.at_ms - pending.trigger_time_ms,
        leader=leader_document(event.leader.session_id, pending.token, event.leader.holder),
        run=pending.run,
        code_hash=pending.code_hash,
        spec_hash=pending.spec_hash,
        expected=len(pending.expected),
        failure_reason=event.reason.value,
        failure_detail=event.detail,
        sinks={},
        veto=event.veto,
    )
