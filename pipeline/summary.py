"""What `list` shows of a checkpoint without opening its metadata: figures that go into the manifest event."""

from __future__ import annotations

from typing import Any

from pipeline.metadata import CheckpointMetadata
from pipeline.times import iso_us


def summary_of(metadata: CheckpointMetadata) -> dict[str, Any]:
    """JSON-compatible figures of one checkpoint.

    `checkpointed_bytes` is what this checkpoint wrote for state, `full_bytes` what its state refers to in all.
    `watermark` is the minimum over sources with event time, ISO 8601, or None.
    """
    runs = [run for operator in metadata.operators.values() for handle in operator.handles for run in handle.runs]
    own = f"t{metadata.token:020d}/"
    tasks = metadata.tasks
    return {
        "rows_in": sum(source.rows for source in metadata.sources.values()),
        "rows_out": sum(sink.committable.rows for sink in metadata.sinks.values()),
        "late_rows": sum(operator.late_rows for operator in metadata.operators.values()),
        "objects": sum(source.objects for source in metadata.sources.values()),
        "acks": len(metadata.acknowledged),
        "checkpointed_bytes": sum(run.size for run in runs if own in run.key),
        "full_bytes": sum({run.key: run.size for run in runs}.values()),
        "sync_ms": max((int(task.get("sync_ms", 0)) for task in tasks), default=0),
        "async_ms": max((int(task.get("async_ms", 0)) for task in tasks), default=0),
        "alignment_ms": max((int(task.get("alignment_ms", 0)) for task in tasks), default=0),
        "watermark": iso_us(_watermark(metadata)),
        "quality": metadata.verdict.status.value,
    }


def _watermark(metadata: CheckpointMetadata) -> int | None:
    known = [source.watermark_us for source in metadata.sources.values() if source.watermark_us is not None]
    return min(known, default=None)
