"""Checkpoint details are what `show` adds from the metadata of a retained checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from milepost.epoch.iso_times import watermark_text
from milepost.epoch.metadata import CheckpointMetadata
from milepost.jobmaster.job.code import code_differences
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.timings import AfterCommit, kept, notified_of, phases_of
from milepost.protocol.codec.records import to_json
from milepost.protocol.exchange.declines import recreated
from milepost.protocol.records.checkpoints import CompletedCheckpoint, SubtaskKey
from milepost.protocol.records.ids import CheckpointId


def details_of(
    context: JobContext, checkpoint: CompletedCheckpoint, after: Sequence[AfterCommit] | None = None
) -> dict[str, Any]:
    """What `show` adds from the checkpoint's metadata, and from what was measured after its commit.

    Args:
        after: when it is known; None: it is read.

    `code_differs` names what of the code that ran is not what would run now; None when that was not recorded.
    """
    metadata = context.metadata(checkpoint)
    measured = kept(context, checkpoint.checkpoint_id, checkpoint.token) if after is None else after
    return {
        "base": metadata.base,
        "final": metadata.final,
        "held_back": metadata.held_back,
        "sources": {
            name: {
                "rows": source.rows,
                "objects": source.objects,
                "missing": list(source.missing),
                "skipped": source.skipped,
                "bad_names": list(source.bad_names),
                "newest_event_time": watermark_text(source.newest_event_us),
                "ahead": {
                    "rows": source.ahead_rows,
                    "objects": [
                        {"object": one.key, "rows": one.rows, "newest_event_time": watermark_text(one.newest_us)}
                        for one in source.ahead
                    ],
                },
                "watermark_us": source.watermark_us,
                "finished": source.finished,
            }
            for name, source in metadata.sources.items()
        },
        "operators": {
            uid: {
                "rows_in": item.rows_in,
                "rows_out": item.rows_out,
                "late_rows": item.late_rows,
                "state_rows": sum(handle.live_rows for handle in item.handles),
                "full_bytes": sum(handle.full_bytes for handle in item.handles),
                "runs": sum(len(handle.runs) for handle in item.handles),
                "firing_watermark_us": item.firing_us,
                "firing_watermark": watermark_text(item.firing_us),
                "in_flight_bytes": item.in_flight_bytes,
            }
            for uid, item in metadata.operators.items()
        },
        "sink_rows": {name: item.committable.rows for name, item in metadata.sinks.items()},
        "verdict": to_json(metadata.verdict),
        "acknowledged": [
            {"level": item.level, "subtask": item.subtask, "attempt_digest": item.attempt_digest}
            for item in metadata.acknowledged
        ],
        "tasks": to_json(metadata.tasks),
        "recreated": _recreated(metadata),
        "phases": phases_of(metadata, measured),
        "notified_ms": notified_of(measured),
        "code": dict(metadata.code),
        "code_differs": code_differences(context, metadata),
        "spec": metadata.spec_text,
    }


def _recreated(metadata: CheckpointMetadata) -> list[dict[str, int]]:
    measured = [(SubtaskKey(task.level, task.subtask), task.attempt) for task in metadata.tasks]
    return [
        {"level": one.subtask.level, "subtask": one.subtask.subtask, "attempts": one.attempts, "base": int(one.base)}
        for one in recreated(measured, CheckpointId(metadata.base))
    ]
