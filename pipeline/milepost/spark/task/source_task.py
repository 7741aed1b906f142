"""Read a source subtask's objects in plan order, then acknowledge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
        names_objects: whether rows of different objects are emitted apart, with the object's key.
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
    rows = tombstones = 0
    bad = BadInputCounter()
    times = EventTimeTracker(split.event_time, split.max_ahead_us)
    missing: list[str] = []
    coalescer = _BatchCoalescer(split.source)
    if split.is_landed:
        own = (part.object for part in split.parts if not is_reference(part.object.key))
        store = immutable_objects(store, [ObjectHandle(obj.key, obj.size, obj.etag) for obj in own])
        store = with_references(store, {root: open_store(config) for root, config in split.files.stores.items()})
    versions = [ObjectVersion(part.object.key, part.object.etag, part.object.size) for part in split.parts]
    store = prefetching_store(store, versions, min(MAX_WHOLE_READ_BYTES, memory.budget.held_bytes))
    for part in split.parts:
        obj, is_partly_read = part.object, False
        try:
            for piece in split.read(store, part, memory):
                is_partly_read = True
                if isinstance(piece, BadRows):
                    count = bad.add_bad(obj.planned_ms, piece.rows.num_rows, piece.first, whole_object=piece.whole)
                    yield Rows(split.source + BAD, pa.Table.from_batches([piece.rows]))
                    assert split.dead_letters is not None
                    if (limit := split.dead_letters.max_records) is not None and count > limit:
                        detail = too_many_bad_records(split.source, count, limit, bad.result())
                        yield _declined(split, CheckpointFailureReason.BAD_RECORD, detail)
                        return
                    continue
                tombstones += _tombstones(piece)
                piece = piece.replace_schema_metadata(None)
                rows += piece.num_rows
                bad.add_rows(obj.planned_ms, piece.num_rows)
                yield from coalescer.add(times.add(obj, piece), obj.key if split.names_objects else None)
        except BadRecord as error:
            yield _declined(split, CheckpointFailureReason.BAD_RECORD, _bad_record_detail(split, error))
            return
        except CommitConflict:
            if is_reference(obj.key):
                yield _lost_file(split, CheckpointFailureReason.SOURCE_OBJECT_CHANGED, obj.key)
                return
            yield _declined(
                split,
                CheckpointFailureReason.SOURCE_OBJECT_CHANGED,
                f"source {split.source}: object {obj.key} changed after it was planned (expected version {obj.etag})",
            )
            return
        except NotFound:
            if is_reference(obj.key):
                yield _lost_file(split, CheckpointFailureReason.SOURCE_OBJECT_MISSING, obj.key)
                return
            # A later epoch reads a skipped object if it reappears, and would emit the same rows again.
            if is_partly_read or not split.skips_missing:
                when = (
                    "was deleted while it was being read"
                    if is_partly_read
                    else "was deleted after it was planned (on_missing: fail)"
                )
                detail = f"source {split.source}: object {obj.key} {when}"
                yield _declined(split, CheckpointFailureReason.SOURCE_OBJECT_MISSING, detail)
                return
            missing.append(obj.key)
        except MemoryError as error:  # the caller adds the memory settings, but does not know the object
            raise MemoryError(f"source {split.source}: reading {obj.key}: {error}") from error
        except CheckpointError as error:
            who = f"source {split.source}: {obj.key}"
            yield Declined(split.identity.decline_for(error, who, CheckpointFailureReason.IO_EXCEPTION))
            return
    yield from coalescer.flush()
    metrics.rows_in, metrics.bytes_in = rows, sum(part.size for part in split.parts if part.object.key not in missing)
    metrics.mark("read_ms")
    yield RowsDone()
    yield SnapshotStarted()
    ack: dict[str, Any] = {"rows": rows, "objects": len(split.parts), "missing": missing}
    ack |= {"newest_event_us": times.newest_us, "ahead_rows": times.ahead_rows, "furthest_us": times.furthest_us}
    ack |= {"partitions": times.partitions, "tombstones": tombstones}
    ack["ahead"] = [to_json(row) for row in times.ahead]
    if split.dead_letters is not None:
        ack["bad"] = to_json(bad.result())
    yield OperatorStageEnd({"sources": {split.source: ack}})


class _BatchCoalescer:
    """Coalesce small batches, because routing and encoding each one alone would cost more than its rows.

    Batches of 30,000, 30,000 and 10,000 rows become tables of 60,000 and 10,000. A batch of 65,536 is emitted alone.
    Batches of different objects that are named are not coalesced.
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


def _bad_record_detail(split: SourceSplit, error: BadRecord) -> str:
    line = f", line {error.line}" if error.line is not None else ""
    value = f", value {error.value!r} " if error.value is not None else ": "
    column = f", column {error.column}" if error.column is not None else ""
    place = error.location[0] if isinstance(error, BadMessage) else f"object {error.key}{line}"
    return f"source {split.source}: {place}{column}{value}{error.reason}"


def _lost_file(split: SourceSplit, reason: CheckpointFailureReason, uri: str) -> Declined:
    """Return the decline for an external data file that was changed or deleted after it was landed."""
    decline = split.identity.decline(
        reason, f"source {split.source}: {lost_file_problem(uri, split.files.format, reason)}"
    )
    return Declined(replace(decline, payload={"hint": LOST_FILE_HINT}))


def _declined(split: SourceSplit, reason: CheckpointFailureReason, detail: str) -> Declined:
    return Declined(split.identity.decline(reason, detail))
