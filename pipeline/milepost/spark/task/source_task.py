"""Read a source subtask's objects in plan order, then acknowledge."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from milepost.codec import to_json
from milepost.errors import CheckpointError, CommitConflict, NotFound
from milepost.operators.base import BAD
from milepost.protocol.exchange import SubtaskIdentity
from milepost.protocol.landed import is_reference
from milepost.protocol.records import CheckpointFailureReason, ObjectHandle, ObjectStore, StoreConfig
from milepost.sources import (
    MAX_WHOLE_READ_BYTES,
    TOMBSTONES,
    BadInputCounter,
    BadMessage,
    BadRecord,
    EventTimeTracker,
    ObjectPart,
    PartReader,
    SourceObject,
    too_many_bad_records,
)
from milepost.sources.planning import LOST_FILE_HINT, ReferencedFiles, lost_file_problem
from milepost.spark.task.dead_letter_reader import BadRows, DeadLetterReader, Piece
from milepost.spark.wire.task_output import Declined, OperatorStageEnd, Rows, RowsDone, SnapshotStarted, TaskOutput
from milepost.spark.worker.task_memory import Memory
from milepost.spark.worker.task_metrics import TaskMetrics
from milepost.storage import immutable_objects, open_store, with_references
from milepost.storage.concurrency import ObjectVersion, prefetching_store

_COALESCED_ROWS = 65_536
_COALESCED_BYTES = 1 << 20
"""Rows of small objects are emitted together, up to these limits."""


@dataclass(frozen=True, slots=True)
class SourceSplit:
    """The objects, and parts of objects, that one source subtask reads, in plan order.

    Attributes:
        source: name of the source, which is also its node in the job graph.
        identity: identity of the source subtask. Its index is the channel of its rows.
        event_time: event-time column, or None for a static source.
        skips_missing: whether to skip an object that is deleted before any of its rows is emitted.
        max_ahead_us: rows that are further ahead of their trigger do not advance the watermark; None: all rows do.
        dead_letters: reader that turns bad records into rows of `<source>.bad`; None: the subtask declines.
        is_landed: whether the objects are the job's own immutable copies, so that the version of each is its SHA-256.
        files: for a landed source, the external data files that its log refers to.
        names_objects: whether rows of different objects are emitted separately, with the object's key.
    """

    source: str
    identity: SubtaskIdentity
    store: StoreConfig
    parts: tuple[ObjectPart, ...]
    reader: PartReader
    event_time: str | None
    skips_missing: bool
    max_ahead_us: int | None = None
    dead_letters: DeadLetterReader | None = None
    is_landed: bool = False
    files: ReferencedFiles = field(default_factory=ReferencedFiles)
    names_objects: bool = False

    def read(self, store: ObjectStore, part: ObjectPart, memory: Memory) -> Iterator[Piece]:
        """Yield a part's rows in order, and with a dead-letter reader its bad records. Raises the reader's errors."""
        if self.dead_letters is None:
            return self.reader.read_part(store, part)
        return self.dead_letters.read(store, part, memory)


def run_source(
    split: SourceSplit,
    store: ObjectStore,
    metrics: TaskMetrics,
    memory: Memory,
    open_store: Callable[[StoreConfig], ObjectStore] = open_store,
) -> Iterator[TaskOutput]:
    """Yield the split's rows, then its acknowledgement.

    Bad input becomes rows of `<source>.bad`, or a decline that names the object and the line.

    Args:
        store: store of the split's objects. open_store: opens the stores of its external data files.
    """
    store = _with_parts(store, split, memory, open_store)
    read = _ReadSplit(split)
    for part in split.parts:
        declined = yield from read.read_part(store, part, memory)
        if declined is not None:
            yield declined
            return
    yield from read.coalescer.flush()
    metrics.rows_in = read.rows
    metrics.bytes_in = sum(part.size for part in split.parts if part.object.key not in read.missing)
    metrics.mark("read_ms")
    yield RowsDone()
    yield SnapshotStarted()
    yield OperatorStageEnd({"sources": {split.source: read.acknowledgement()}})


def _with_parts(
    store: ObjectStore, split: SourceSplit, memory: Memory, open_store: Callable[[StoreConfig], ObjectStore]
) -> ObjectStore:
    """Return the store that reads the split's objects, each in its planned version, and prefetches them."""
    if split.is_landed:
        own = (part.object for part in split.parts if not is_reference(part.object.key))
        store = immutable_objects(store, [ObjectHandle(obj.key, obj.size, obj.etag) for obj in own])
        store = with_references(store, {root: open_store(config) for root, config in split.files.stores.items()})
    versions = [ObjectVersion(part.object.key, part.object.etag, part.object.size) for part in split.parts]
    return prefetching_store(store, versions, min(MAX_WHOLE_READ_BYTES, memory.budget.held_bytes))


class _ReadSplit:
    """A subtask's progress through its split.

    Attributes:
        missing: keys of objects that were deleted before they were read, and skipped.
    """

    def __init__(self, split: SourceSplit) -> None:
        self._split = split
        self._bad = BadInputCounter()
        self._times = EventTimeTracker(split.event_time, split.max_ahead_us)
        self._tombstones = 0
        self.coalescer = _BatchCoalescer(split.source)
        self.rows = 0
        self.missing: list[str] = []

    def read_part(
        self, store: ObjectStore, part: ObjectPart, memory: Memory
    ) -> Generator[TaskOutput, None, Declined | None]:
        """Yield a part's rows. Return the subtask's decline, or None if the part was read. Raises MemoryError."""
        key, is_partly_read = part.object.key, False
        try:
            for piece in self._split.read(store, part, memory):
                is_partly_read = True
                if isinstance(piece, BadRows):
                    yield Rows(self._split.source + BAD, pa.Table.from_batches([piece.rows]))
                    if (declined := self._add_bad(part.object, piece)) is not None:
                        return declined
                else:
                    yield from self._add(part.object, piece)
        except MemoryError as error:  # the caller adds the memory settings, but does not know the object
            raise MemoryError(f"source {self._split.source}: reading {key}: {error}") from error
        except NotFound:
            # A later epoch reads a skipped object if it reappears, and would emit the same rows again.
            if is_reference(key) or is_partly_read or not self._split.skips_missing:
                return _deleted(self._split, key, is_partly_read=is_partly_read)
            self.missing.append(key)
        except (BadRecord, CheckpointError) as error:
            return _unreadable(self._split, part.object, error)
        return None

    def _add(self, obj: SourceObject, batch: pa.RecordBatch) -> Iterator[Rows]:
        """Count a batch of an object. Yield the rows that reached a limit of the coalescer."""
        self._tombstones += _tombstones(batch)
        batch = batch.replace_schema_metadata(None)
        self.rows += batch.num_rows
        self._bad.add_rows(obj.planned_ms, batch.num_rows)
        yield from self.coalescer.add(self._times.add(obj, batch), obj.key if self._split.names_objects else None)

    def _add_bad(self, obj: SourceObject, piece: BadRows) -> Declined | None:
        """Count bad records of an object. Return a decline if there are too many."""
        count = self._bad.add_bad(obj.planned_ms, piece.rows.num_rows, piece.first, whole_object=piece.whole)
        assert self._split.dead_letters is not None
        limit = self._split.dead_letters.max_records
        if limit is None or count <= limit:
            return None
        detail = too_many_bad_records(self._split.source, count, limit, self._bad.result())
        return _declined(self._split, CheckpointFailureReason.BAD_RECORD, detail)

    def acknowledgement(self) -> dict[str, Any]:
        """Return the payload of the acknowledgement."""
        times = self._times
        ack: dict[str, Any] = {"rows": self.rows, "objects": len(self._split.parts), "missing": self.missing}
        ack |= {"newest_event_us": times.newest_us, "ahead_rows": times.ahead_rows, "furthest_us": times.furthest_us}
        ack |= {"partitions": times.partitions, "tombstones": self._tombstones}
        ack["ahead"] = [to_json(row) for row in times.ahead]
        if self._split.dead_letters is not None:
            ack["bad"] = to_json(self._bad.result())
        return ack


class _BatchCoalescer:
    """Coalesces small batches, because routing and encoding each of them would cost more than processing its rows.

    Batches of 30,000, 30,000 and 10,000 rows become tables of 60,000 and 10,000. A batch of 65,536 is emitted alone.
    Batches of different named objects are not coalesced.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._object: str | None = None

    def add(self, batch: pa.RecordBatch, object_key: str | None) -> Iterator[Rows]:
        """Add a batch. Yield the rows that reached a limit. object_key: the object to name, or None."""
        if object_key != self._object:
            yield from self.flush()
            self._object = object_key
        if self._rows + batch.num_rows > _COALESCED_ROWS or self._bytes + batch.nbytes > _COALESCED_BYTES:
            yield from self.flush()
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _COALESCED_ROWS or self._bytes >= _COALESCED_BYTES:  # before reading the next batch
            yield from self.flush()

    def flush(self) -> Iterator[Rows]:
        """Yield the buffered rows."""
        held, self._held, self._rows, self._bytes = self._held, [], 0, 0
        if held:
            yield Rows(self._source, pa.Table.from_batches(held).combine_chunks(), object=self._object)


def _tombstones(batch: pa.RecordBatch) -> int:
    metadata = batch.schema.metadata
    return 0 if metadata is None else int(metadata.get(TOMBSTONES, 0))


def _deleted(split: SourceSplit, key: str, *, is_partly_read: bool) -> Declined:
    """Return the decline for an object that no longer exists and is not skipped."""
    if is_reference(key):
        return _lost_file(split, CheckpointFailureReason.SOURCE_OBJECT_MISSING, key)
    when = (
        "was deleted while it was being read"
        if is_partly_read
        else "was deleted after it was planned (on_missing: fail)"
    )
    return _declined(
        split, CheckpointFailureReason.SOURCE_OBJECT_MISSING, f"source {split.source}: object {key} {when}"
    )


def _unreadable(split: SourceSplit, obj: SourceObject, error: BadRecord | CheckpointError) -> Declined:
    """Return the decline for an object that has a bad record, has changed, or could not be read."""
    if isinstance(error, BadRecord):
        return _declined(split, CheckpointFailureReason.BAD_RECORD, _bad_record_detail(split, error))
    if isinstance(error, CommitConflict):
        if is_reference(obj.key):
            return _lost_file(split, CheckpointFailureReason.SOURCE_OBJECT_CHANGED, obj.key)
        changed = f"object {obj.key} changed after it was planned (expected version {obj.etag})"
        return _declined(split, CheckpointFailureReason.SOURCE_OBJECT_CHANGED, f"source {split.source}: {changed}")
    who = f"source {split.source}: {obj.key}"
    return Declined(split.identity.decline_for(error, who, CheckpointFailureReason.IO_EXCEPTION))


def _bad_record_detail(split: SourceSplit, error: BadRecord) -> str:
    line = f", line {error.line}" if error.line is not None else ""
    value = f", value {error.value!r} " if error.value is not None else ": "
    column = f", column {error.column}" if error.column is not None else ""
    location = error.location[0] if isinstance(error, BadMessage) else f"object {error.key}{line}"
    return f"source {split.source}: {location}{column}{value}{error.reason}"


def _lost_file(split: SourceSplit, reason: CheckpointFailureReason, uri: str) -> Declined:
    """Return the decline for an external data file that was changed or deleted after it was landed."""
    decline = split.identity.decline(
        reason, f"source {split.source}: {lost_file_problem(uri, split.files.format, reason)}"
    )
    return Declined(replace(decline, payload={"hint": LOST_FILE_HINT}))


def _declined(split: SourceSplit, reason: CheckpointFailureReason, detail: str) -> Declined:
    return Declined(split.identity.decline(reason, detail))
