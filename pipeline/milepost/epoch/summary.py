"""Figures of a checkpoint for its manifest event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.epoch.iso_times import watermark_text
from milepost.epoch.metadata import CheckpointMetadata


def summary_of(metadata: CheckpointMetadata) -> dict[str, Any]:
    """Return the JSON-compatible figures of one checkpoint.

    `checkpointed_bytes` is the size of the state that this checkpoint wrote, `full_bytes` of all state it refers to.
    Row rules judged `judged_rows` and refused `rejected_rows`, of which `quarantined_rows` were not dropped; absent
    without such rules. `watermark` is the minimum over sources with event time as ISO 8601, or None. After a job's last
    epoch it is "end". `started_ms` is when the trigger began, by the clock of its machine. The last confirmation of a
    sink fills in `duration_ms`.
    """
    runs = [run for operator in metadata.operators.values() for handle in operator.handles for run in handle.runs]
    own = f"t{metadata.token:020d}/"
    tasks = metadata.tasks
    return {
        "rows_in": sum(source.rows for source in metadata.sources.values()),
        "rows_out": sum(sink.rows for sink in metadata.sinks.values()),
        "bad_records": sum(source.bad.records for source in metadata.sources.values()),
        "late_rows": late_rows_of(metadata),
        "dropped_rows": dropped_rows_of(metadata),
        **_rejected_rows(metadata),
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
        "started_ms": metadata.started_ms,
        "duration_ms": None,
    }


def _rejected_rows(metadata: CheckpointMetadata) -> dict[str, int]:
    """Return what row rules judged and refused, over all sinks that have such rules; {} if none has."""
    sinks = [sink for sink in metadata.sinks.values() if sink.rejected_rows is not None]
    if not sinks:
        return {}
    rejected = sum(sink.rejected_rows or 0 for sink in sinks)
    return {
        "judged_rows": rejected + sum(sink.rows for sink in sinks),
        "rejected_rows": rejected,
        "quarantined_rows": sum(sink.quarantined_rows or 0 for sink in sinks),
    }


def late_rows_of(metadata: CheckpointMetadata) -> int:
    """Return the number of late rows, each counted once even if several operators refused it.

    Rows have no identity across operators. Of operators that share a source, only the one that refused the most rows
    counts, because the others refused mostly the same rows:

        hours      late 5, reads a      sessions   late 3, reads a      pairs   late 4, reads b      -> 5 + 4 = 9
    """
    return _count_once(metadata, {uid: operator.late_rows for uid, operator in metadata.operators.items()})


def dropped_rows_of(metadata: CheckpointMetadata) -> int | None:
    """Return the number of late rows that no sink publishes, counted like `late_rows_of`; None: it is not recorded."""
    counts = {uid: operator.dropped_rows for uid, operator in metadata.operators.items()}
    known = {uid: count for uid, count in counts.items() if count is not None}
    return _count_once(metadata, known) if len(known) == len(counts) else None


def _count_once(metadata: CheckpointMetadata, counts: Mapping[str, int]) -> int:
    """Return the sum over operators. Of those that share a source, only the largest count is added."""
    every = frozenset(metadata.sources)
    recorded = metadata.signatures.get("operators", {})
    rows, counted = 0, frozenset[str]()
    for uid, count in sorted(counts.items(), key=lambda item: -item[1]):
        sources = _sources_of(recorded.get(uid, {})) or every
        if not counted & sources:
            rows, counted = rows + count, counted | sources
    return rows


def _sources_of(signature: Mapping[str, Any]) -> frozenset[str]:
    """Return the sources whose watermarks decide lateness for an operator. Its signature has one list per input."""
    sources = signature.get("sources", ())
    return frozenset(name for item in sources for name in ((item,) if isinstance(item, str) else item))


def watermark_of(metadata: CheckpointMetadata) -> int | None:
    known = [source.watermark_us for source in metadata.sources.values() if source.watermark_us is not None]
    return min(known, default=None)
