"""Decide the next record of a source's log. Pure: the caller stores it under a key that must be free.

A landing reads from the `end` of the newest record, whatever the external system remembers (L3). Two concurrent
landings read the same rows, and only one of them can create the next record (L1)::

    newest record 7 ends at 500
    landing A reads 500 -> 620 and creates record 8
    landing B reads 500 -> 640; record 8 exists; B's objects are garbage, and B reads again from 620
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milepost.errors import InvalidRequest, SourceReplaced
from milepost.protocol.landed.files import LandedObject, ReferencedFile
from milepost.protocol.landed.records import (
    Identity,
    LogRecord,
    Position,
    RecordKind,
    SourceBacklog,
    StoredRecord,
)
from milepost.protocol.records import LANDED_PREFIX

JOB = "job"
"""Name in a log's identity of the identity of the job's life."""

SLOT = "slot"
"""Name in a log's identity of the replication slot that the log is read from. It can serve one log only."""

EMPTY_RECORD_MS = 600_000
"""A landing without rows moves the position at most this often, so that an idle log does not grow (L10)."""


def first_record(
    write_id: str, identity: Identity, position: Position, now_ms: int, declared_start: str = ""
) -> LogRecord:
    """Return record 1, which fixes where the log begins even if there are no rows yet (L9)."""
    return LogRecord(
        log=write_id,
        sequence=1,
        kind=RecordKind.START,
        write_id=write_id,
        previous=None,
        start=position,
        end=position,
        landed_at_ms=now_ms,
        objects=(),
        total_rows=0,
        total_bytes=0,
        total_objects=0,
        rows_at_ms=None,
        identity=identity,
        declared_start=declared_start,
    )


def next_record(
    source: str,
    newest: StoredRecord,
    write_id: str,
    end: Position,
    objects: Sequence[LandedObject],
    now_ms: int,
    behind: Sequence[str] = (),
    backlog: SourceBacklog | None = None,
    references: Sequence[ReferencedFile] = (),
    layouts: Sequence[Mapping[str, str]] = (),
) -> LogRecord | None:
    """Return the record that appends new input after the newest record; None if none is due (L10).

    Without rows, a moved position is recorded once the newest record is `EMPTY_RECORD_MS` old.

    Args:
        source: for messages. end: where the reading stopped. objects: the rows up to there, in order.
        now_ms: the store's clock. If it went back, the time of the newest record counts.
        behind: partitions that this landing has not read to its end yet.
        backlog: what the external system had after `end`; None: unknown.
        references, layouts: as in a record.
    Raises:
        InvalidRequest: there are rows, but the position did not move. They would be landed again and again.
    """
    before = newest.record
    files: Sequence[LandedObject | ReferencedFile] = (*objects, *references)
    if end == before.end and files:
        raise InvalidRequest(
            f"source {source}: it read {sum(item.rows for item in files)} rows, but its position did not move from "
            f"{end!r}. Nothing was landed.",
            hint="the position after a read must be another one whenever there were rows",
        )
    now_ms = max(now_ms, before.landed_at_ms)
    if not files and (end == before.end or now_ms - before.landed_at_ms < EMPTY_RECORD_MS):
        return None
    return LogRecord(
        log=before.log,
        sequence=before.sequence + 1,
        kind=RecordKind.ROWS,
        write_id=write_id,
        previous=newest.digest,
        start=before.end,
        end=end,
        landed_at_ms=now_ms,
        objects=tuple(objects),
        total_rows=before.total_rows + sum(item.rows for item in files),
        total_bytes=before.total_bytes + sum(item.size for item in files),
        total_objects=before.total_objects + len(files),
        rows_at_ms=now_ms if files else before.rows_at_ms,
        identity=before.identity,
        behind=tuple(behind),
        first=before.first,
        backlog=backlog,
        total_gaps=before.total_gaps,
        voids=before.voids,
        references=tuple(references),
        layouts=tuple(layouts),
    )


def require_own_log(source: str, recorded: Identity, job: str) -> None:
    """Check that a log belongs to this life of the job (L9). Raises SourceReplaced.

    Args:
        job: identity of this life. A job that was deleted and created again in the same storage has another one.
    """
    if recorded.get(JOB) != job:
        raise SourceReplaced(
            f"source {source}: its log is of an earlier life of the job ({recorded.get(JOB)}): the job was deleted and "
            f"created again in the same storage ({job}). Nothing was landed or read; the log is unchanged.",
            hint=f"give the source another name in the spec, or move {LANDED_PREFIX}{source}/ out of the job's "
            "storage: either begins a new log",
            source=source,
        )


def require_identity(source: str, recorded: Identity, now: Identity) -> None:
    """Check that a log is this job's, and still a copy of the same external system (L9). Raises SourceReplaced."""
    require_own_log(source, recorded, now[JOB])
    for name in sorted({*recorded, *now}):
        begun, found = recorded.get(name), now.get(name)
        if begun != found:
            raise SourceReplaced(
                f"source {source}: its log was begun for {name} {begun!r}, and {name} is {found!r} now. Nothing was "
                "landed; earlier records are unchanged.",
                hint="give the source another name in the spec, which begins a log of its own, or undo the change",
                source=source,
            )
