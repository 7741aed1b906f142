"""The figures of one epoch as a row, which is stored permanently."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

from milepost.codec import to_json
from milepost.epoch import SINK, SOURCE, CheckpointMetadata, SubtaskShare, recorded_watermark_us
from milepost.jobmaster.figures.timings import epoch_duration_ms, measured_duration_ms, phases_of, requests_of
from milepost.jobmaster.job.measurements import PostCommitTimes
from milepost.language.times import EPOCH
from milepost.protocol.manifest.transaction import CheckpointAborted
from milepost.protocol.records import CheckpointStatus, CompletedCheckpoint
from milepost.storage import StoreRequests

_COPIED = (
    *("rows_in", "rows_out", "late_rows", "dropped_rows", "bad_records", "objects"),
    *("judged_rows", "rejected_rows", "quarantined_rows", "checkpointed_bytes", "in_flight_bytes"),
)
"""Figures that a row copies from a checkpoint's summary."""

_BUSY = ("restore_ms", "process_ms", "emit_ms", "sync_ms")
"""Times of an operator during which its task works only for this operator."""

Row = dict[str, Any]
"""Values by column, as in `SCHEMA`. An absent column is null."""


def day_of(milliseconds: int) -> str:
    """Return the day in UTC of a time in ms since the epoch: 1_700_000_000_123 is "2023-11-14"."""
    return date.fromordinal(EPOCH.toordinal() + milliseconds // 86_400_000).isoformat()


def completed_row(
    checkpoint: CompletedCheckpoint, metadata: CheckpointMetadata | None, after: Sequence[PostCommitTimes]
) -> Row:
    """Return the row of a completed checkpoint.

    Args:
        metadata: None: unreadable; the row then has only the figures in the manifest. after: times after the commit.
    """
    summary = checkpoint.summary
    row: Row = {
        "checkpoint_id": int(checkpoint.checkpoint_id),
        "epoch": int(checkpoint.epoch),
        "timeline": checkpoint.timeline,
        "parent": int(checkpoint.parent),
        "token": int(checkpoint.token),
        "version": checkpoint.version,
        "status": CheckpointStatus.COMPLETED.value,
        "trigger_time": checkpoint.trigger_time_ms,
        "end_time": checkpoint.completed_time_ms,
        "duration_ms": epoch_duration_ms(checkpoint),
        "state_bytes": summary.get("full_bytes"),
        "quality": summary.get("quality"),
        "run_id": checkpoint.run.run_id,
        "code_hash": checkpoint.code_hash,
        "spec_hash": checkpoint.spec_hash,
        **{name: summary.get(name) for name in _COPIED},
        **_watermark(summary.get("watermark"), checkpoint.trigger_time_ms),
    }
    if metadata is None:
        return row
    phases = phases_of(metadata, after, measured_duration_ms(checkpoint))
    if phases["total_ms"] is not None:
        row["duration_ms"] = phases["total_ms"]
    return (
        row | {"phases": [(phase, ms) for phase, ms in phases.items() if ms is not None]} | _measured(metadata, after)
    )


def aborted_row(event: CheckpointAborted, version: int, refused_by: Sequence[str] = ()) -> Row:
    """Return the row of an aborted checkpoint.

    Args:
        version: of the manifest, with its abort. refused_by: names of the rules that vetoed it.
    """
    pending = event.pending
    return {
        "checkpoint_id": int(pending.checkpoint_id),
        "epoch": int(pending.epoch),
        "timeline": event.timeline,
        "parent": int(pending.base),
        "token": int(pending.token),
        "version": version,
        "status": CheckpointStatus.ABORTED.value,
        "reason": event.reason.value,
        "refused_by": list(refused_by) or None,
        "trigger_time": pending.trigger_time_ms,
        "end_time": event.at_ms,
        "duration_ms": event.at_ms - pending.trigger_time_ms,
        "run_id": pending.run.run_id,
        "code_hash": pending.code_hash,
        "spec_hash": pending.spec_hash,
    }


def _watermark(text: object, trigger_ms: int) -> Row:
    """Return the watermark and how far it was behind the trigger; neither after a job's last epoch."""
    us = recorded_watermark_us(text)
    return {} if us is None else {"watermark": us, "lag_ms": trigger_ms - us // 1000}


def _measured(metadata: CheckpointMetadata, after: Sequence[PostCommitTimes]) -> Row:
    requests = requests_of(metadata, after)
    shares = metadata.shares
    return {
        "requests": to_json(sum(requests.values(), StoreRequests())),
        "task_ms": sum(task.total_ms for task in metadata.tasks),
        "written_bytes": _total(share.bytes for share in shares if share.kind == SINK),
        "sources": [
            (
                name,
                {
                    "rows": source.rows,
                    "objects": source.objects,
                    "bad_records": source.bad.records,
                    "newest_event": source.newest_event_us,
                },
            )
            for name, source in metadata.sources.items()
        ],
        "operators": _operators(metadata),
        "sinks": _sinks(metadata),
    }


def _operators(metadata: CheckpointMetadata) -> list[tuple[str, Row]]:
    """Return the figures of each operator; of an operator without state, such as SQL, only those of its shares."""
    by_node: dict[str, list[SubtaskShare]] = {}
    for share in metadata.shares:
        if share.kind not in (SOURCE, SINK):
            by_node.setdefault(share.node, []).append(share)
    figures = {
        uid: {
            "rows_in": _total(share.rows_in for share in shares),
            "rows_out": _total(share.rows_out for share in shares),
            "late_rows": _total(share.late_rows for share in shares),
        }
        for uid, shares in by_node.items()
    }
    for uid, operator in metadata.operators.items():
        times = [task.operators[uid] for task in metadata.tasks if uid in task.operators]
        figures[uid] = {
            "rows_in": operator.rows_in,
            "rows_out": operator.rows_out,
            "late_rows": operator.late_rows,
            "dropped_rows": operator.dropped_rows,
            "busy_ms": sum(getattr(item, name) for item in times for name in _BUSY) if times else None,
            "state_bytes": sum({run.key: run.size for item in operator.handles for run in item.runs}.values()),
        }
    return list(figures.items())


def _sinks(metadata: CheckpointMetadata) -> list[tuple[str, Row]]:
    verdicts = {verdict.sink: verdict.expectations for verdict in metadata.verdict.verdicts}
    return [
        (
            name,
            {
                "rows": sink.rows,
                "bytes": _total(share.bytes for share in metadata.shares if (share.kind, share.node) == (SINK, name)),
                "table_rows": metadata.tables[name].rows if name in metadata.tables else None,
                "rules": len(verdicts[name]) if name in verdicts else None,
                "rules_met": sum(result.success for result in verdicts[name]) if name in verdicts else None,
            },
        )
        for name, sink in metadata.sinks.items()
    ]


def _total(values: Iterable[int | None]) -> int | None:
    """Return the sum of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
