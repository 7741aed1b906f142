"""Rewrite the buckets of an upsert table that an epoch changed (copy-on-write)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from milepost.errors import ProtocolViolation
from milepost.operators.base import DELETED_COLUMN
from milepost.protocol.records import ObjectStore
from milepost.sinks.buckets.bucketed_rows import BucketedRows
from milepost.sinks.buckets.table_buckets import (
    MAX_BUCKETS,
    BucketPlan,
    OwnedKeys,
    bucket_count,
    buckets_of,
    dirty_buckets,
    is_within,
    overlaps,
)
from milepost.sinks.parquet_files.deletes import (
    align_deletes,
    has_live_rows,
    schema_with_deletes,
    table_columns,
    to_change_rows,
    without_deletes,
)
from milepost.sinks.parquet_files.file_cuts import cut_by_size
from milepost.sinks.parquet_files.table_files import ReadOptions, TableFiles
from milepost.sinks.parquet_files.table_schema import conform, merged_schema, rows_to_stage, sorted_latest
from milepost.storage.concurrency import parallel_map
from milepost.tables.records import RowsPiece, StagedFile, StagedRows, StagingContext

_PARALLEL_BUCKETS = 4
"""On a local disk: some threads wait for fsync while others read, sort and encode."""

_MEMORY_PER_FILE_BYTE = 4
"""Estimated size of rows in memory per byte of their Parquet file."""


class BucketStaging:
    """Stages one subtask's buckets of one table. The buckets being written are held in memory.

    Args:
        routing_key: the key columns that decide which subtask owns a row.
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
        # For key groups 0..63: file 0..31 is a bucket of this subtask, 48..79 and a file without groups are shared with
        # other subtasks, 64..127 is not read.
        own = [file for file in plan.files if file.groups is None or overlaps(file.groups, owned.groups)]
        self._buckets = [file for file in own if is_within(file.groups, owned.groups)]
        self._shared = [file for file in own if not is_within(file.groups, owned.groups)]

    def stage_pieces(self, pieces: Iterable[RowsPiece], context: StagingContext) -> StagedRows:
        """Write the changed buckets durably, each named by its content; on a fork only the changes."""
        tables = rows_to_stage(self._name, pieces, self._key, upsert=True)
        changes: Iterator[pa.Table] = (to_change_rows(rows) for rows in tables if rows.num_rows)

        def stage_changes(rows: Iterable[pa.Table]) -> StagedRows:
            file = self._files.stage(rows, context, str(context.subtask))
            return StagedRows() if file is None else StagedRows(file.rows, (file,))

        if not self._plan.rewrites:
            return stage_changes(changes)
        first = next(changes, None)
        if first is None and not self._shared:
            return StagedRows()
        schema = self._plan.schema
        if first is not None:
            schema = merged_schema(self._name, schema, table_columns(first.schema))
            changes = chain([first], changes)
        assert schema is not None, "a table with files has columns"
        bucketed = BucketedRows(self._finest_buckets(), context.held_bytes)
        self._add_shared(bucketed, schema)
        added = self._add_changes(bucketed, changes, schema)
        if self._plan.keeps_changes:
            staged = stage_changes(added)
        else:
            staged = StagedRows(sum(rows.num_rows for rows in added))
        if not (staged.rows or self._shared):
            return staged
        return self._rewrite_buckets(staged, bucketed, schema, context)

    def _rewrite_buckets(
        self, staged: StagedRows, bucketed: BucketedRows, schema: pa.Schema, context: StagingContext
    ) -> StagedRows:
        """Merge the bucketed changes into the files of each dirty bucket, and add the new files to `staged`."""
        count = self._plan.count or bucket_count(
            max(bucketed.rows, sum(file.rows for file in self._buckets)), self._owned
        )
        buckets, finest = buckets_of(self._owned, count), self._finest_buckets()
        parts = [[index for index, part in enumerate(finest) if is_within(part, bucket)] for bucket in buckets]
        sizes = [sum(map(bucketed.bytes_of, indices)) for indices in parts]
        dirty = dirty_buckets(buckets, (index for index, size in enumerate(sizes) if size), self._buckets)
        base = [[file for file in self._buckets if overlaps(file.groups or range(0), bucket)] for bucket in buckets]

        def write(index: int) -> tuple[StagedFile, ...]:
            """Return the bucket's new files: one file, none, or the base files if nothing changed."""
            changed = [rows for part in parts[index] for rows in bucketed.of(part)]
            unchanged = self._rows_of(base[index], buckets[index], schema)
            rows = pa.concat_tables(align_deletes([schema.empty_table(), *unchanged, *changed]))
            latest = without_deletes(sorted_latest(rows, self._key))
            only_deletes = not any(map(has_live_rows, changed))
            is_unchanged = only_deletes and latest.num_rows == sum(file.rows for file in base[index])
            if is_unchanged and all(is_within(file.groups, buckets[index]) for file in base[index]):
                return tuple(base[index])
            label = f"{context.subtask}-{buckets[index].start}"
            file = self._files.stage([latest], replace(context, held_bytes=latest.nbytes), label)
            return () if file is None else (replace(file, groups=buckets[index]),)

        written = list[StagedFile]()
        weights = [
            sizes[index] + _MEMORY_PER_FILE_BYTE * sum(file.size for file in base[index])
            for index in range(len(buckets))
        ]
        for batch in cut_by_size(dirty, weights.__getitem__, context.held_bytes):
            for files in parallel_map(self._files.store, write, batch, locally=_PARALLEL_BUCKETS):
                written += files
        merged = [file for file in self._buckets if any(file in base[index] for index in dirty)]
        created = tuple(file for file in written if file not in merged)
        replaced = tuple(file.key for file in (*self._shared, *merged) if file not in written)
        if not created and not replaced:  # only deletes of absent keys: the staged changes would become a table file
            return StagedRows(staged.rows)
        return replace(staged, buckets=created, replaced=replaced)

    def _finest_buckets(self) -> tuple[range, ...]:
        """Return the finest division into buckets. Every coarser bucket is a union of these.

        Rows are divided before the final count is known. With counts of a power of two, each cut of 4 buckets
        (32, 64, 96 of 128 key groups) is also a cut of 64 buckets.
        """
        return buckets_of(self._owned, self._plan.count or MAX_BUCKETS)

    def _add_shared(self, bucketed: BucketedRows, schema: pa.Schema) -> None:
        """Add the subtask's own rows from files that it shares with other subtasks, including deletes."""
        own = self._owned
        for rows in self._files.all_pieces(self._shared, ReadOptions(schema, verify=True, deletes=True)):
            groups = own.key_groups(rows, self._routing_key, own.of)
            is_own = (groups >= own.groups.start) & (groups < own.groups.stop)
            bucketed.add(rows.filter(pa.array(is_own)), groups[is_own])

    def _add_changes(
        self, bucketed: BucketedRows, changes: Iterable[pa.Table], schema: pa.Schema
    ) -> Iterator[pa.Table]:
        """Yield the rows of the epoch, each table once it is added."""
        own = self._owned
        for rows in changes:
            groups = own.key_groups(rows, self._routing_key, own.of)
            if not (own.groups.start <= groups.min() and groups.max() < own.groups.stop):
                raise ProtocolViolation(f"sink {self._name}: rows with keys of another subtask. Nothing was published.")
            columns = schema_with_deletes(schema) if DELETED_COLUMN in rows.column_names else schema
            bucketed.add(conform("rows of the epoch", rows.replace_schema_metadata(None), columns), groups)
            yield rows

    def _rows_of(self, files: Iterable[StagedFile], bucket: range, schema: pa.Schema) -> list[pa.Table]:
        tables = []
        for file in files:
            rows = self._files.fetch(file, ReadOptions(schema, verify=True))
            if not is_within(file.groups, bucket):
                groups = self._owned.key_groups(rows, self._routing_key, self._owned.of)
                rows = rows.filter(pa.array((groups >= bucket.start) & (groups < bucket.stop)))
            tables.append(rows)
        return tables
