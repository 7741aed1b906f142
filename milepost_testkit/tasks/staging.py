"""Staging of whole tables: what a task does with rows that come piece by piece."""

from __future__ import annotations

import pyarrow as pa

from milepost.sinks.buckets.bucket_staging import BucketStaging
from milepost.sinks.buckets.table_buckets import BucketPlan, OwnedKeys
from milepost.sinks.contract import PreparingSink, Sink, StagingSink
from milepost.sinks.parquet_files.table_files import TableFiles
from milepost.sinks.staging.compaction import CompactionStaging, compacted_buckets, plan_compaction
from milepost.sinks.staging.join_staging import JoinStaging
from milepost.sinks.staging.small_files import JoinPlan, plan_joins
from milepost.state.layers.key_groups import key_group_range
from milepost.state.layers.key_hash import KeyHash
from milepost.tables.records.committables import (
    Committable,
    RowsPiece,
    StagedFile,
    StagedRows,
    StagingContext,
    decode_schema,
)
from milepost.tables.records.contents import TableContents

KEY_GROUPS = 128
HASHER = KeyHash("0123456789abcdef" * 2)


def stage(
    sink: StagingSink, rows: pa.Table, *, checkpoint_id: int, token: int, subtask: int, distinct: bool = False
) -> StagedRows:
    """Stage one table as one piece.

    Args:
        distinct: whether no two of the rows are known to have the same key.
    """
    context = StagingContext(checkpoint_id, token, subtask, held_bytes=max(1, rows.nbytes))
    return sink.stage_pieces([RowsPiece(rows, distinct)], context)


def stage_each(
    sink: PreparingSink, checkpoint_id: int, token: int, *tables: pa.Table, schema: pa.Schema
) -> Committable:
    """Stage one table per subtask, and collect them."""
    staged = [stage(sink, one, checkpoint_id=checkpoint_id, token=token, subtask=i) for i, one in enumerate(tables)]
    return sink.committable(staged, schema)


def stage_joining(
    sink: Sink, base: TableContents | None, checkpoint_id: int, token: int, *tables: pa.Table, schema: pa.Schema
) -> Committable:
    """Stage one table per subtask, and join small files of the base, as an epoch on the live timeline does."""
    if base is None:
        return stage_each(sink, checkpoint_id, token, *tables, schema=schema)
    plan = JoinPlan(plan_joins(sink.files(base)), decode_schema(base.schema))
    staged = []
    for subtask, rows in enumerate(tables):
        files = TableFiles(sink.name, sink.store, statistics=True)
        staging = JoinStaging(sink, files, plan.share(subtask, len(tables)))
        staged.append(stage(staging, rows, checkpoint_id=checkpoint_id, token=token, subtask=subtask))
    return sink.committable(staged, schema)


def stage_compacting(
    sink: Sink, base: TableContents | None, checkpoint_id: int, token: int, *tables: pa.Table, schema: pa.Schema
) -> Committable:
    """Stage one table per subtask of a table of the latest rows in files of changes, and compact the base, as an epoch
    on the live timeline does."""
    plan = None if base is None else plan_compaction(sink.files(base), decode_schema(base.schema))
    if plan is None:
        return stage_each(sink, checkpoint_id, token, *tables, schema=schema)
    staged = []
    for subtask, rows in enumerate(tables):
        staging: StagingSink
        if isinstance(plan, JoinPlan):
            staging = JoinStaging(sink, TableFiles(sink.name, sink.store), plan.share(subtask, len(tables)), sink.key)
        else:
            owned = OwnedKeys(key_group_range(KEY_GROUPS, len(tables), subtask), KEY_GROUPS, HASHER.key_groups)
            staging = CompactionStaging(
                sink, compacted_buckets(sink.name, sink.key, sink.store, plan, owned), sink.store
            )
        staged.append(stage(staging, rows, checkpoint_id=checkpoint_id, token=token, subtask=subtask))
    return sink.committable(staged, schema)


def stage_buckets(
    sink: Sink,
    base: TableContents | None,
    checkpoint_id: int,
    token: int,
    *tables: pa.Table,
    schema: pa.Schema,
    files: tuple[StagedFile, ...] | None = None,
    rewrites: bool = True,
    count: int | None = None,
    parallelism: int = 2,
) -> Committable:
    """Stage the rows of all tables by the subtasks that own their keys, as an epoch that builds on `base` does.

    Args:
        files: on which it builds; None: those of the base, whatever became of the table since.
    """
    if files is None:
        files = sink.bucket_files(base, waits=True)
    columns = None if base is None else decode_schema(base.schema)
    plan = BucketPlan(files, columns, count, rewrites, keeps_changes=True)
    rows = pa.concat_tables([schema.empty_table(), *tables])
    groups = HASHER.key_groups(rows, sink.key, KEY_GROUPS)
    staged = []
    for subtask in range(parallelism):
        owned = OwnedKeys(key_group_range(KEY_GROUPS, parallelism, subtask), KEY_GROUPS, HASHER.key_groups)
        staging = BucketStaging(sink.name, key=sink.key, routing_key=sink.key, store=sink.store, plan=plan, owned=owned)
        own = rows.filter(pa.array((groups >= owned.groups.start) & (groups < owned.groups.stop)))
        staged.append(stage(staging, own, checkpoint_id=checkpoint_id, token=token, subtask=subtask))
    return sink.committable(staged, schema)
