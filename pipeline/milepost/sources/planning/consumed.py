"""The set of consumed object versions: state of a source, kept as immutable runs (never in the manifest value).

Each epoch adds one small run of what it consumed. When there would be more than `MAX_RUNS`, one base replaces them
all, so the bytes written per epoch stay small and a load opens few objects; that is when it forgets what is old.
Runs are Parquet, named by content.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.errors import NotFound, ProtocolViolation, StateCorrupt
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.object_store import ObjectStore
from milepost.protocol.retention.handle_check import MISSING, handle_fault
from milepost.sources.contract import SourceObject
from milepost.sources.planning.forgetting import ForgottenRows
from milepost.sources.readers.arrow_errors import DATA_ERRORS

MAX_RUNS = 8
"""More runs than this are replaced by one base."""

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
"""Without a list of Python in it: of the first one that Arrow meets, it looks in pandas, which takes long to import."""


@dataclass(frozen=True, slots=True)
class ConsumedSet:
    """Every object version that a source has consumed so far.

    Attributes:
        table: `SCHEMA`, oldest checkpoint first; one row per version, so a reprocessed key has several.
        horizon_ms: versions that were modified before it may have been forgotten; None: it is whole.
        compacts: the next run replaces all: what is forgotten then costs nothing.
    """

    table: pa.Table
    horizon_ms: int | None = None
    needs_compaction: bool = False

    @staticmethod
    def empty() -> ConsumedSet:
        return ConsumedSet(_EMPTY)

    @staticmethod
    def of(runs: Iterable[pa.Table]) -> ConsumedSet:
        """Return the set that these runs hold together, oldest first."""
        return ConsumedSet(pa.concat_tables([_EMPTY, *runs]).combine_chunks())

    def __len__(self) -> int:
        return int(self.table.num_rows)


def load(store: ObjectStore, handles: Sequence[ObjectHandle]) -> ConsumedSet:
    """Return the set that the runs hold together.

    Args:
        store: the job's own store (handles are relative to its root).
        handles: of one checkpoint and source, oldest first.

    Raises:
        StateCorrupt: a run is missing, has another size or checksum, or is no run.
    """
    return ConsumedSet.of(read_run(store, handle) for handle in handles)


def read_run(store: ObjectStore, handle: ObjectHandle) -> pa.Table:
    """Return one run, of `SCHEMA`. Raises StateCorrupt: it is missing, does not match its handle, or is no run."""
    try:
        body = store.get(handle.key)
    except NotFound as error:
        raise _corrupt(handle, MISSING) from error
    fault = handle_fault(body, handle)
    if fault is not None:
        raise _corrupt(handle, fault)
    try:
        return pq.ParquetFile(pa.BufferReader(body)).read().cast(SCHEMA)
    except (*DATA_ERRORS, OSError, ValueError) as error:
        raise _corrupt(handle, f"it is not a run of consumed objects ({error})") from error


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
    """Write what one epoch consumed; return the handles that the checkpoint must record, and the run of the last.

    Bytes and name depend on the arguments alone, so a repeated attempt writes the same object again.

    Args:
        store: the job's own store.
        prefix: of the epoch's own token and the source; the run's digest follows.
        handles: of the checkpoint that the epoch continues, oldest first; unchanged runs are carried by reference.
        objects: versions consumed in this epoch, in plan order; none: nothing is written.
        checkpoint_id: the epoch's.
        forgets: what leaves the set, when the epoch consumes something.
        read: returns the set of runs that are compacted; None: they are read one after another.

    Raises:
        StateCorrupt: a run to be compacted is missing or does not match its handle.
        ProtocolViolation: what leaves is not of this set.
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
    kept = tuple(handles)
    if forgets is not None or needs_compaction(kept):
        before = (load(store, kept) if read is None else read(kept)).table
        run = pa.concat_tables([before if forgets is None else _without(before, forgets), run]).combine_chunks()
        kept = ()
    sink = io.BytesIO()
    pq.write_table(run, sink, compression="zstd", use_dictionary=["checkpoint_id"], store_schema=False)
    body = sink.getvalue()
    digest = hashlib.sha256(body).hexdigest()
    handle = ObjectHandle(f"{prefix}{digest}.parquet", len(body), digest)
    store.put(handle.key, body)
    return (*kept, handle), run


def needs_compaction(handles: Sequence[ObjectHandle]) -> bool:
    """Return whether the next run replaces those that there are."""
    return len(handles) + 1 > MAX_RUNS


def _without(consumed: pa.Table, forgets: ForgottenRows) -> pa.Table:
    fault = forgets.fault(consumed)
    if fault is not None:
        raise ProtocolViolation(f"what a source was to forget is not of its set of consumed objects: {fault}")
    return forgets.remaining(consumed)


def _corrupt(handle: ObjectHandle, problem: str) -> StateCorrupt:
    return StateCorrupt(
        f"run {handle.key} of a source's consumed objects cannot be used: {problem}. Nothing was planned or changed.",
        hint="Run `milepost verify JOB` for all that is broken, and restore those objects from a copy of the store.",
        key=handle.key,
    )
