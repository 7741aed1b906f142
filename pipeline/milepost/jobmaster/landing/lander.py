"""Land one source: read the external system from the end of the log, store the rows, append a record, acknowledge.

Order of writes of a landing:
1. Objects, below a folder of their own.
2. The record that names them, under a key that must be free. This is the commit point.
3. The acknowledgement to the external system.
A landing first repeats the acknowledgement of the newest record, because the landing before may have stopped between 2
and 3. A landing that lost the race for a record, or does not know the outcome, deletes and acknowledges nothing. The
next one reads from the end of the newest record (L1, L3).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from milepost.errors import CommitConflict, PositionExpired, SourceWentBack
from milepost.jobmaster.landing.lost_positions import named_positions
from milepost.jobmaster.landing.object_writer import ObjectWriter
from milepost.protocol.landed import (
    JOB,
    Identity,
    LogRecord,
    Position,
    ReferencedFile,
    StoredRecord,
    first_record,
    next_record,
    require_identity,
)
from milepost.sources.landed import FileReference, LandedSource, PartRows, Pull, Reached, stored_position
from milepost.storage.log import SourceLog


@dataclass(frozen=True, slots=True)
class Landing:
    """What one landing of a source did.

    Attributes:
        records, rows, bytes: appended by it. The first landing of a source also begins its log.
        sequence: of the newest record. end: its position.
    """

    source: str
    records: int
    rows: int
    bytes: int
    sequence: int
    end: Position


class Lander:
    """Appends to one log.

    Args:
        job_identity: identity of this life of the job (L9).
        new_write_id: returns a new globally unique text per call.
        declared_start: `start` of the spec, stored in record 1; empty: the source has none.
        before_begin: called with the identity of the external system before a new log begins. May raise to refuse it.
    """

    def __init__(
        self,
        log: SourceLog,
        source: LandedSource,
        job_identity: str,
        new_write_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        before_begin: Callable[[Identity], None] = lambda _: None,
        declared_start: str = "",
    ) -> None:
        self._log, self._source = log, source
        self._job_identity, self._new_write_id = job_identity, new_write_id
        self._before_begin, self._declared_start = before_begin, declared_start

    def land(self) -> Landing:
        """Append records until the external system is read to its end.

        Raises:
            SourceReplaced: the log is a copy of something else. SourceUnreachable: the external system failed.
            PositionExpired, SourceWentBack: the external system cannot continue from the end of the log.
            InvalidRequest: rows do not fit the declared columns, or a position cannot be stored.
            CommitConflict: another landing runs at the same time. CommitOutcomeUnknown: the newest record may be ours.
            StoreUnavailable, StateCorrupt: from the store.
        """
        identity = self._identity()
        newest = self._log.newest()
        if newest is None:
            self._before_begin(identity)
            position = stored_position(self._log.source, self._source.initial_position())
            first = first_record(self._new_write_id(), identity, position, self._now_ms(), self._declared_start)
            newest = self._log.begin(first)
        else:
            require_identity(self._log.source, newest.record.identity, identity)
            self._acknowledge(newest)
        before = newest
        while (record := self._next_record(newest)) is not None:
            newest = self._log.append(record)
            self._acknowledge(newest)
        return _landing(self._log.source, before.record, newest.record)

    def _identity(self) -> Identity:
        return {JOB: self._job_identity, **self._source.identity()}

    def _next_record(self, newest: StoredRecord) -> LogRecord | None:
        """Store the rows after the newest record. Returns the record that will name them; None: nothing is due."""
        with self._positions(newest):
            pull = self._source.next_pull(newest.record.end)
            return None if pull is None else self._read(newest, pull)

    def _read(self, newest: StoredRecord, pull: Pull) -> LogRecord | None:
        """Store the rows of a pull. Returns the record that will name them; None: nothing is due."""
        write_id = self._new_write_id()
        reached: list[Reached] = []
        files: list[FileReference] = []
        with ObjectWriter(self._log.store, self._log.stored_as, newest.record.sequence + 1, write_id) as writer:
            for number, split in enumerate(pull.splits):
                writer.write(number, _rows(self._source.read(split), reached, files))
            objects = writer.finish()
        stop = Reached(pull.end, pull.behind, pull.backlog) if pull.end is not None else reached[-1]
        end, now_ms = stored_position(self._log.source, stop.position), self._now_ms()
        layouts = [*dict.fromkeys(tuple(file.columns.items()) for file in files)]
        references = [
            ReferencedFile(
                file.uri, file.size, file.etag, file.rows, layouts.index(tuple(file.columns.items())), file.values
            )
            for file in files
        ]
        return next_record(
            self._log.source,
            newest,
            write_id,
            end,
            objects,
            now_ms,
            stop.behind,
            stop.backlog,
            references,
            [dict(layout) for layout in layouts],
        )

    def _acknowledge(self, newest: StoredRecord) -> None:
        with self._positions(newest):
            self._source.commit(newest.record.end)

    @contextmanager
    def _positions(self, newest: StoredRecord) -> Iterator[None]:
        """Add the source and the end of the log to PositionExpired and SourceWentBack in the block.

        Raises CommitConflict instead if another landing has appended and acknowledged what follows.
        """
        source = self._log.source
        try:
            with named_positions(source, newest.record.end):
                yield
        except (PositionExpired, SourceWentBack) as lost:
            last = self._log.newest()
            if last is None or last.record.sequence <= newest.record.sequence:
                raise
            raise CommitConflict(
                f"source {source}: another landing appended record {newest.record.sequence + 1} while this one read "
                "the same rows. Nothing from this read was landed.",
                hint="nothing: the other landing has these rows; the next one continues from there",
                source=source,
            ) from lost

    def _now_ms(self) -> int:
        return self._log.store.clock_ms()


def _rows(
    items: Iterator[pa.RecordBatch | PartRows | FileReference | Reached],
    reached: list[Reached],
    files: list[FileReference],
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches of a split with the number of their part. Append its files and its end to the lists."""
    for item in items:
        if isinstance(item, Reached):
            reached.append(item)
        elif isinstance(item, FileReference):
            files.append(item)
        else:
            yield (item.part, item.rows) if isinstance(item, PartRows) else (0, item)


def _landing(source: str, before: LogRecord, newest: LogRecord) -> Landing:
    return Landing(
        source=source,
        records=newest.sequence - before.sequence,
        rows=newest.total_rows - before.total_rows,
        bytes=newest.total_bytes - before.total_bytes,
        sequence=newest.sequence,
        end=newest.end,
    )
