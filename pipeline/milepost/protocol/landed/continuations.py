"""Continue a log in another job, from a savepoint: its first record, and the records copied into it (L9).

Record numbers and totals continue from the savepoint. Example: a savepoint has read the log up to record 6, and the job
that it is restored into has no log::

    log a    … 6 rows 400 -> 500     7 rows 500 -> 560     8 rows 560 -> 600
    log b    6 start 500 -> 500      7 rows 500 -> 560     8 rows 560 -> 600     9 …

Record 6 of log b stands for everything that was read. Records 7 and 8 are copies from the savepoint. A savepoint
without input has no records to copy, and the next landing reads from 500.
"""

from __future__ import annotations

from dataclasses import replace

from milepost.protocol.landed.appends import JOB
from milepost.protocol.landed.records import Identity, LogPosition, LogRecord, RecordKind, StoredRecord
from milepost.protocol.landed.voids import voids_after


def continuing_record(write_id: str, job: str, identity: Identity, position: LogPosition, now_ms: int) -> LogRecord:
    """Return the first record of a log that continues another one at a position.

    Args:
        job: identity of the life of the job whose log it is. identity: what the other log is a copy of.
    """
    return LogRecord(
        log=write_id,
        sequence=position.next - 1,
        kind=RecordKind.START,
        write_id=write_id,
        previous=None,
        start=position.at,
        end=position.at,
        landed_at_ms=now_ms,
        objects=(),
        total_rows=position.total_rows,
        total_bytes=position.total_bytes,
        total_objects=position.total_objects,
        rows_at_ms=now_ms if position.total_rows else None,
        identity={**identity, JOB: job},
        first=position.next - 1,
        continues=position,
    )


def copied_record(newest: StoredRecord, copied: LogRecord) -> LogRecord:
    """Return the copy of another log's record that follows the newest record of this log."""
    log = newest.record
    return replace(
        copied,
        log=log.log,
        previous=newest.digest,
        identity=log.identity,
        first=log.first,
        total_gaps=log.total_gaps + (copied.gap is not None),
        voids=voids_after(log.voids, copied),
        landed_at_ms=max(copied.landed_at_ms, log.landed_at_ms),
    )


def is_continued_by(position: LogPosition, begin: LogRecord) -> bool:
    """Return whether the first record of a log says that it continues another log at a position."""
    return begin.continues == position
