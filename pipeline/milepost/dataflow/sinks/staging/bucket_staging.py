"""A subtask writes the buckets of a table of the latest rows that its epoch changed, before the commit point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from milepost.dataflow.sinks.files.deletes import (
    alike,
    columns_with_deletes,
    has_rows,
    rows_that_stay,
    stageable,
    table_columns,
)
from milepost.dataflow.sinks.files.table_files import TableFiles
from milepost.dataflow.sinks.files.table_schema import conform, merged_schema, rows_to_stage, sorted_latest
from milepost.dataflow.sinks.records.committables import RowsPiece, StagedFile, StagedRows
from milepost.dataflow.sinks.staging.table_buckets import (
    BucketPlan,
    Ints,
    OwnedKeys,
    bucket_count,
    buckets_of,
    dirty_buckets,
    is_within,
    overlaps,
    split_by_bucket,
)
from milepost.protocol.records.errors import ProtocolViolation
from milepost.protocol.records.object_store import ObjectStore
from milepost.spec.graph.edges import DELETED_COLUMN
from milepost.storage.concurrency.at_once import at_once

_BUCKETS_AT_ONCE = 4
"""In a directory: while some wait until the disk has a bucket for good, others are read, sorted and encoded."""


class BucketStaging:
    """What one subtask stages for one table; it holds the rows that its epoch changed.

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

    def stage_pieces(
        self, pieces: Iterable[RowsPiece], *, checkpoint_id: int, token: int, subtask: int, held_bytes: int
    ) -> StagedRows:
        """Write the changed buckets durably, each named by its content; on a fork the changes alone."""
        changes = [stageable(rows) for rows in rows_to_stage(self._name, pieces, self._key, upsert=True)]
        staged = StagedRows(sum(rows.num_rows for rows in changes))
        if self._plan.keeps_changes or not self._plan.rewrites:
            file = self._files.stage(changes, checkpoint_id, token, str(subtask), held_bytes)
            staged = staged if file is None else replace(staged, files=(file,))
        if not self._plan.rewrites or not (staged.rows or self._shared):
            return staged
        return self._rewritten(staged, changes, checkpoint_id, token, subtask)

    def _rewritten(
        self, staged: StagedRows, changes: Sequence[pa.Table], checkpoint_id: int, token: int, subtask: int
    ) -> StagedRows:
        schema = self._plan.schema
        if changes:
            schema = merged_schema(self._name, schema, table_columns(changes[0].schema))
        assert schema is not None, "a table with files has columns"
        changed, groups = self._changed(changes, schema)
        count = self._plan.count or bucket_count(
            max(changed.num_rows, sum(file.rows for file in self._buckets)), self._owned
        )
        buckets = buckets_of(self._owned, count)
        parts = split_by_bucket(changed, groups, buckets)
        dirty = dirty_buckets(buckets, (at for at, part in enumerate(parts) if part.num_rows), self._buckets)

        def write(at: int) -> tuple[StagedFile, ...]:
            """Return what the bucket's rows are in afterwards: a file, none, or those that were there."""
            files = [file for file in self._buckets if file.groups is not None and overlaps(file.groups, buckets[at])]
            rows = pa.concat_tables(alike([*self._rows_of(buckets[at], schema), parts[at]]))
            latest = rows_that_stay(sorted_latest(rows, self._key))
            lost_none = not has_rows(parts[at]) and latest.num_rows == sum(file.rows for file in files)
            if lost_none and all(is_within(file.groups, buckets[at]) for file in files):
                return tuple(files)
            label = f"{subtask}-{buckets[at].start}"
            file = self._files.stage([latest], checkpoint_id, token, label, latest.nbytes)
            return () if file is None else (replace(file, groups=buckets[at]),)

        written = [file for files in at_once(self._store, write, dirty, locally=_BUCKETS_AT_ONCE) for file in files]
        taken = [file for file in self._buckets if any(overlaps(file.groups or range(0), buckets[at]) for at in dirty)]
        made = tuple(file for file in written if file not in taken)
        gone = tuple(file.key for file in (*self._shared, *taken) if file not in written)
        if not made and not gone:  # deletes of what never was: as a change of its own it would be a file of the table
            return StagedRows(staged.rows)
        return replace(staged, buckets=made, replaced=gone)

    def _changed(self, changes: Sequence[pa.Table], schema: pa.Schema) -> tuple[pa.Table, Ints]:
        """Return own rows of shared files, then those of the epoch, with deletes, and the key group of each."""
        own = self._owned
        tables, groups = [schema.empty_table()], [np.array([], dtype=np.int64)]
        for file in self._shared:
            rows = self._files.fetch(file, schema, verify=True, deletes=True)
            among = own.key_groups(rows, self._routing_key, own.of)
            mine = (among >= own.groups.start) & (among < own.groups.stop)
            tables.append(rows.filter(pa.array(mine)))
            groups.append(among[mine])
        for rows in changes:
            among = own.key_groups(rows, self._routing_key, own.of)
            if rows.num_rows and not (own.groups.start <= among.min() and among.max() < own.groups.stop):
                raise ProtocolViolation(f"sink {self._name}: rows with keys of another subtask. Nothing was published.")
            columns = columns_with_deletes(schema) if DELETED_COLUMN in rows.column_names else schema
            tables.append(conform("rows of the epoch", rows.replace_schema_metadata(None), columns))
            groups.append(among)
        return pa.concat_tables(alike(tables)), np.concatenate(groups)

    def _rows_of(self, bucket: range, schema: pa.Schema) -> list[pa.Table]:
        found = []
        for file in self._buckets:
            if file.groups is None or not overlaps(file.groups, bucket):
                continue
            rows = self._files.fetch(file, schema, verify=True)
            if not is_within(file.groups, bucket):
                among = self._owned.key_groups(rows, self._routing_key, self._owned.of)
                rows = rows.filter(pa.array((among >= bucket.start) & (among < bucket.stop)))
            found.append(rows)
        return found
