"""A subtask writes the buckets of a table of the latest rows that its epoch changed, before the commit point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from milepost.errors import ProtocolViolation
from milepost.jobspec.graph.edges import DELETED_COLUMN
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.files.deletes import (
    alike,
    columns_with_deletes,
    has_rows,
    rows_that_stay,
    stageable,
    table_columns,
)
from milepost.sinks.files.file_cuts import cut_by_size
from milepost.sinks.files.table_files import Reading, TableFiles
from milepost.sinks.files.table_schema import conform, merged_schema, rows_to_stage, sorted_latest
from milepost.sinks.records.committables import RowsPiece, StagedFile, StagedRows
from milepost.sinks.records.staging_place import StagingPlace
from milepost.sinks.staging.bucketed_rows import BucketedRows
from milepost.sinks.staging.table_buckets import (
    MAX_BUCKETS,
    BucketPlan,
    OwnedKeys,
    bucket_count,
    buckets_of,
    dirty_buckets,
    is_within,
    overlaps,
)
from milepost.storage.concurrency.parallel_map import parallel_map

_BUCKETS_AT_ONCE = 4
"""In a directory: while some wait until the disk has a bucket for good, others are read, sorted and encoded."""

_UNPACKED = 4
"""How many bytes rows have in memory, about, for each of their file."""


class BucketStaging:
    """What one subtask stages for one table; it holds the buckets that are being written.

    Args:
        routing_key: the columns of the key by which a subtask owns rows, so those of one key value are in one bucket.
        store: rooted at the table.
    """

    def __init__(
        self,
        name: str,
        *,
        key: tuple[str, ...],
        routing_key: tuple[str, ...],
        store: ObjectStore,
        plan: BucketPlan,
        owned: OwnedKeys,
    ) -> None:
        self._name, self._key, self._store, self._plan, self._owned = name, key, store, plan, owned
        self._routing_key = routing_key
        self._files = TableFiles(name, store, statistics=True)
        own = [file for file in plan.files if file.groups is None or overlaps(file.groups, owned.groups)]
        self._buckets = [file for file in own if is_within(file.groups, owned.groups)]
        self._shared = [file for file in own if not is_within(file.groups, owned.groups)]

    def stage_pieces(self, pieces: Iterable[RowsPiece], place: StagingPlace) -> StagedRows:
        """Write the changed buckets durably, each named by its content; on a fork the changes alone."""
        every = rows_to_stage(self._name, pieces, self._key, upsert=True)
        changes: Iterator[pa.Table] = (stageable(rows) for rows in every if rows.num_rows)

        def staged(rows: Iterable[pa.Table]) -> StagedRows:
            file = self._files.stage(rows, place, str(place.subtask))
            return StagedRows() if file is None else StagedRows(file.rows, (file,))

        if not self._plan.rewrites:
            return staged(changes)
        first = next(changes, None)
        if first is None and not self._shared:
            return StagedRows()
        schema = self._plan.schema
        if first is not None:
            schema = merged_schema(self._name, schema, table_columns(first.schema))
            changes = chain([first], changes)
        assert schema is not None, "a table with files has columns"
        parted = BucketedRows(self._finest(), place.held_bytes)
        self._add_shared(parted, schema)
        taken = self._added(parted, changes, schema)
        found = staged(taken) if self._plan.keeps_changes else StagedRows(sum(rows.num_rows for rows in taken))
        if not (found.rows or self._shared):
            return found
        return self._rewritten(found, parted, schema, place)

    def _rewritten(
        self, staged: StagedRows, parted: BucketedRows, schema: pa.Schema, place: StagingPlace
    ) -> StagedRows:
        count = self._plan.count or bucket_count(
            max(parted.rows, sum(file.rows for file in self._buckets)), self._owned
        )
        buckets, finest = buckets_of(self._owned, count), self._finest()
        parts = [[at for at, part in enumerate(finest) if is_within(part, bucket)] for bucket in buckets]
        sizes = [sum(map(parted.bytes_of, each)) for each in parts]
        dirty = dirty_buckets(buckets, (at for at, size in enumerate(sizes) if size), self._buckets)
        below = [[file for file in self._buckets if overlaps(file.groups or range(0), one)] for one in buckets]

        def write(at: int) -> tuple[StagedFile, ...]:
            """Return what the bucket's rows are in afterwards: a file, none, or those that were there."""
            changed = [rows for part in parts[at] for rows in parted.of(part)]
            unchanged = self._rows_of(below[at], buckets[at], schema)
            rows = pa.concat_tables(alike([schema.empty_table(), *unchanged, *changed]))
            latest = rows_that_stay(sorted_latest(rows, self._key))
            lost_none = not any(map(has_rows, changed)) and latest.num_rows == sum(file.rows for file in below[at])
            if lost_none and all(is_within(file.groups, buckets[at]) for file in below[at]):
                return tuple(below[at])
            label = f"{place.subtask}-{buckets[at].start}"
            file = self._files.stage([latest], replace(place, held_bytes=latest.nbytes), label)
            return () if file is None else (replace(file, groups=buckets[at]),)

        written = list[StagedFile]()
        weights = [sizes[at] + _UNPACKED * sum(file.size for file in below[at]) for at in range(len(buckets))]
        for together in cut_by_size(dirty, weights.__getitem__, place.held_bytes):
            for files in parallel_map(self._files.store, write, together, locally=_BUCKETS_AT_ONCE):
                written += files
        taken = [file for file in self._buckets if any(file in below[at] for at in dirty)]
        made = tuple(file for file in written if file not in taken)
        gone = tuple(file.key for file in (*self._shared, *taken) if file not in written)
        if not made and not gone:  # deletes of what never was: as a change of its own it would be a file of the table
            return StagedRows(staged.rows)
        return replace(staged, buckets=made, replaced=gone)

    def _finest(self) -> tuple[range, ...]:
        """Return parts of which each bucket is some, however many there will be: a cut of few is one of many."""
        return buckets_of(self._owned, self._plan.count or MAX_BUCKETS)

    def _add_shared(self, parted: BucketedRows, schema: pa.Schema) -> None:
        """Add the subtask's own rows of files that it shares with others, with deletes."""
        own = self._owned
        for rows in self._files.all_pieces(self._shared, Reading(schema, verify=True, deletes=True)):
            among = own.key_groups(rows, self._routing_key, own.of)
            mine = (among >= own.groups.start) & (among < own.groups.stop)
            parted.add(rows.filter(pa.array(mine)), among[mine])

    def _added(self, parted: BucketedRows, changes: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of the epoch, each table once it is added."""
        own = self._owned
        for rows in changes:
            among = own.key_groups(rows, self._routing_key, own.of)
            if not (own.groups.start <= among.min() and among.max() < own.groups.stop):
                raise ProtocolViolation(f"sink {self._name}: rows with keys of another subtask. Nothing was published.")
            columns = columns_with_deletes(schema) if DELETED_COLUMN in rows.column_names else schema
            parted.add(conform("rows of the epoch", rows.replace_schema_metadata(None), columns), among)
            yield rows

    def _rows_of(self, files: Iterable[StagedFile], bucket: range, schema: pa.Schema) -> list[pa.Table]:
        found = []
        for file in files:
            rows = self._files.fetch(file, Reading(schema, verify=True))
            if not is_within(file.groups, bucket):
                among = self._owned.key_groups(rows, self._routing_key, self._owned.of)
                rows = rows.filter(pa.array((among >= bucket.start) & (among < bucket.stop)))
            found.append(rows)
        return found
