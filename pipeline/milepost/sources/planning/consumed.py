"""The set of object versions that a source has consumed, stored as immutable runs.

Each epoch appends one small run. When there would be more than `MAX_RUNS`, one base run replaces them all. So an epoch
writes few bytes and a load opens few objects. Old versions are forgotten only at such a compaction.

With MAX_RUNS = 8, epoch 8 leaves the runs 1, 2, ... 8. Epoch 9 writes one run that contains all nine and is now the
only one. Epoch 10 appends a second one.

Runs are Parquet files named by their digest. The manifest contains only their handles.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.errors import NotFound, ProtocolViolation, StateCorrupt
from milepost.protocol.records import ObjectHandle, ObjectStore
from milepost.protocol.retention import MISSING, handle_fault
from milepost.sources.contract import SourceObject
from milepost.sources.kernel.arrow_errors import DATA_ERRORS
from milepost.sources.planning.forgetting import ForgottenRows

MAX_RUNS = 8
"""Limit on the runs of a set. One base run replaces them when there would be more."""

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("last_modified_ms", pa.int64(), nullable=False),
        pa.field("checkpoint_id", pa.int64(), nullable=False),
    ]
)

_EMPTY = pa.Table.from_batches([], SCHEMA)
"""Built from batches: converting a first Python list makes Arrow import pandas, which is slow."""


@dataclass(frozen=True, slots=True)
class ConsumedSet:
    """Every object version that a source has consumed so far.

    Attributes:
        table: rows of `SCHEMA`, oldest checkpoint first. One row per version, so a reprocessed key has several.
        horizon_ms: versions modified before this time may have been forgotten; None: the set is complete.
        needs_compaction: the next run replaces all others, so versions can be forgotten without an extra write.
    """

    table: pa.Table
    horizon_ms: int | None = None
    needs_compaction: bool = False

    @staticmethod
    def empty() -> ConsumedSet:
        return ConsumedSet(_EMPTY)

    @staticmethod
    def of(runs: Iterable[pa.Table]) -> ConsumedSet:
        """Return the union of these runs, given oldest first."""
        return ConsumedSet(pa.concat_tables([_EMPTY, *runs]).combine_chunks())

    def __len__(self) -> int:
        return int(self.table.num_rows)


def load(store: ObjectStore, handles: Sequence[ObjectHandle]) -> ConsumedSet:
    """Load the consumed set of one source.

    Args:
        store: the job's store (handles are relative to its root).
        handles: runs that one checkpoint records for the source, oldest first.

    Raises:
        StateCorrupt: a run is missing, has another size or checksum, or is not a run.
    """
    return ConsumedSet.of(read_run(store, handle) for handle in handles)


def read_run(store: ObjectStore, handle: ObjectHandle) -> pa.Table:
    """Read one run, as rows of `SCHEMA`. Raises StateCorrupt: it is missing, or does not match its handle."""
    try:
        body = store.get(handle.key)
    except NotFound as error:
        raise _corrupt(handle, MISSING) from error
    fault = handle_fault(body, handle)
    if fault is not None:
        raise _corrupt(handle, fault)
    try:
        return pq.ParquetFile(pa.BufferReader(body), pre_buffer=False).read().cast(SCHEMA)
    except (*DATA_ERRORS, OSError, ValueError) as error:
        raise _corrupt(handle, f"it is not a Parquet file of consumed objects ({error})") from error


def append(
    store: ObjectStore,
    prefix: str,
    handles: Sequence[ObjectHandle],
    objects: Sequence[SourceObject],
    checkpoint_id: int,
    forgets: ForgottenRows | None = None,
    *,
    read: Callable[[Sequence[ObjectHandle]], ConsumedSet] | None = None,
) -> tuple[tuple[ObjectHandle, ...], pa.Table | None]:
    """Write the run of one epoch; return the handles that the checkpoint must record, and the new run's rows.

    Bytes and name depend only on the arguments, so a repeated attempt writes the same object again.

    Args:
        store: the job's store.
        prefix: key prefix with the epoch's token and the source. The run's digest follows it.
        handles: runs of the checkpoint that the epoch continues, oldest first. Unchanged runs are reused.
        objects: versions consumed in this epoch, in plan order. If empty, nothing is written.
        checkpoint_id: id of the epoch's checkpoint.
        forgets: rows to remove from the set; ignored when `objects` is empty.
        read: loads the runs to compact; None: they are loaded one by one.

    Raises:
        StateCorrupt: a run to compact is missing or does not match its handle.
        ProtocolViolation: `forgets` does not fit this set.
    """
    if not objects:
        return tuple(handles), None
    run = pa.table(
        [
            [obj.key for obj in objects],
            [obj.etag for obj in objects],
            [obj.size for obj in objects],
            [obj.last_modified_ms for obj in objects],
            [checkpoint_id] * len(objects),
        ],
        schema=SCHEMA,
    )
    reused = tuple(handles)
    if forgets is not None or needs_compaction(reused):
        before = (load(store, reused) if read is None else read(reused)).table
        run = pa.concat_tables([before if forgets is None else _without(before, forgets), run]).combine_chunks()
        reused = ()
    sink = io.BytesIO()
    pq.write_table(run, sink, compression="zstd", use_dictionary=["checkpoint_id"], store_schema=False)
    body = sink.getvalue()
    digest = hashlib.sha256(body).hexdigest()
    handle = ObjectHandle(f"{prefix}{digest}.parquet", len(body), digest)
    store.put(handle.key, body)
    return (*reused, handle), run


def needs_compaction(handles: Sequence[ObjectHandle]) -> bool:
    """Return whether the next run replaces all current ones."""
    return len(handles) + 1 > MAX_RUNS


def _without(consumed: pa.Table, forgets: ForgottenRows) -> pa.Table:
    fault = forgets.fault(consumed)
    if fault is not None:
        raise ProtocolViolation(f"the rows to forget do not fit the source's set of consumed objects: {fault}")
    return forgets.remaining(consumed)


def _corrupt(handle: ObjectHandle, problem: str) -> StateCorrupt:
    return StateCorrupt(
        f"run {handle.key} of a source's consumed objects cannot be used: {problem}. Nothing was planned or changed.",
        hint="`milepost verify JOB` lists all damaged objects: restore them from a copy of the store.",
        key=handle.key,
    )
