"""The figures of one checkpoint that go into its manifest event."""

from __future__ import annotations

from typing import Any

from milepost.epoch.iso_times import watermark_text
from milepost.epoch.metadata import CheckpointMetadata


def summary_of(metadata: CheckpointMetadata) -> dict[str, Any]:
    """JSON-compatible figures of one checkpoint.

    `checkpointed_bytes` is what this checkpoint wrote for state, `full_bytes` what its state refers to in all.
    `watermark` is the minimum over sources with event time, ISO 8601, or None; "end" after a job's last epoch.
    """
    runs = [run for operator in metadata.operators.values() for handle in operator.handles for run in handle.runs]
    own = f"t{metadata.token:020d}/"
    tasks = metadata.tasks
    return {
        "rows_in": sum(source.rows for source in metadata.sources.values()),
        "rows_out": sum(sink.rows for sink in metadata.sinks.values()),
        "bad_records": sum(source.bad.records for source in metadata.sources.values()),
        "late_rows": sum(operator.late_rows for operator in metadata.operators.values()),
        "objects": sum(source.objects for source in metadata.sources.values()),
        "acks": len(metadata.acknowledged),
        "checkpointed_bytes": sum(run.size for run in runs if own in run.key),
        "full_bytes": sum({run.key: run.size for run in runs}.values()),
        "sync_ms": max((task.spent_ms("sync_ms") for task in tasks), default=0),
        "async_ms": max((task.spent_ms("async_ms") for task in tasks), default=0),
        "alignment_ms": max((task.alignment_ms for task in tasks), default=0),
        "in_flight_bytes": metadata.in_flight_bytes,
        "unaligned": metadata.unaligned,
        "watermark": "end" if metadata.final else watermark_text(watermark_of(metadata)),
        "quality": metadata.verdict.status.value,
    }


def watermark_of(metadata: CheckpointMetadata) -> int | None:
    known = [source.watermark_us for source in metadata.sources.values() if source.watermark_us is not None]
    return min(known, default=None)
