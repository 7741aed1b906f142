"""Decide the gap with which a log continues after lost data (L7). Pure.

A log ends at 620, and the external system has deleted everything before 700::

    3  rows   500 -> 620
    4  gap    620 -> 700     approved by a person
    5  rows   700 -> 760

Epochs, rollbacks, replays and savepoints pass record 4 as they pass any record without rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from milepost.protocol.landed.records import Gap, LogRecord, Position, RecordKind, SourceBacklog, StoredRecord


def gap_record(
    newest: StoredRecord,
    write_id: str,
    end: Position,
    gap: Gap,
    now_ms: int,
    behind: Sequence[str] = (),
    backlog: SourceBacklog | None = None,
) -> LogRecord:
    """Return the gap that follows the newest record.

    Args:
        end: where the log continues, another position than the end of the newest record.
        now_ms: the store's clock. If it went back, the time of the newest record counts.
        behind: partitions that still have something to land after `end`.
        backlog: what the external system had after `end`; None: unknown.
    """
    before = newest.record
    return LogRecord(
        log=before.log,
        sequence=before.sequence + 1,
        kind=RecordKind.GAP,
        write_id=write_id,
        previous=newest.digest,
        start=before.end,
        end=end,
        landed_at_ms=max(now_ms, before.landed_at_ms),
        objects=(),
        total_rows=before.total_rows,
        total_bytes=before.total_bytes,
        total_objects=before.total_objects,
        rows_at_ms=before.rows_at_ms,
        identity=before.identity,
        behind=tuple(behind),
        first=before.first,
        backlog=backlog,
        gap=gap,
        total_gaps=before.total_gaps + 1,
        voids=before.voids,
    )
