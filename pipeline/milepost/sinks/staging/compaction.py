"""Compact an upsert table that is merged on read, before an epoch's commit point.

This applies to managed Parquet tables and to the files behind a Postgres table. An epoch adds change files, and the
last row of a key counts. Below the changes are buckets, each with every key of a range of key groups::

    buckets  a 0..63, b 64..127     changes  c d e ... in commit order

Once there are `COMPACT_FILES` change files, an epoch compacts in the cheaper way:

* If the changes have at least 1/`SHARE` of the buckets' rows, the subtasks that own the key groups rewrite each bucket
  with changed keys, without deletes, and all change files are removed.
* Otherwise adjacent change files are joined (`small_files.py`), and no bucket is rewritten.

For example, buckets of 1,000,000 rows and 64 change files of 1,000 rows: the changes (64,000 rows) are joined. After
they reach 250,000 rows, the buckets are rewritten. So a row is rewritten at most `SHARE` + 1 times per changed row, and
a few times more by joins, however large the table is. The epoch's own changes are staged as usual, on top.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from milepost.protocol.records import ObjectStore
from milepost.sinks.buckets.bucket_staging import BucketStaging
from milepost.sinks.buckets.table_buckets import BucketPlan, OwnedKeys
from milepost.sinks.contract import StagingSink
from milepost.sinks.staging.small_files import JoinPlan, plan_joins
from milepost.storage.concurrency import prefetch
from milepost.tables.records import RowsPiece, StagedFile, StagedRows, StagingContext

COMPACT_FILES = 64
"""Number of change files from which the next epoch compacts the table."""

SHARE = 4
"""The buckets are rewritten once the changes have a 1/SHARE of the buckets' rows."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The files that one epoch rewrites as buckets.

    Attributes:
        files: all files of the table, in commit order. schema: columns of the table.
    """

    files: tuple[StagedFile, ...]
    schema: pa.Schema


MaintenancePlan = JoinPlan | CompactionPlan
"""What an epoch's subtasks do to the existing files. A subtask's share of a compaction follows from its key groups."""


def plan_compaction(files: Sequence[StagedFile], schema: pa.Schema) -> MaintenancePlan | None:
    """Return what an epoch does to the existing files; None if there are few change files.

    Args:
        files: in commit order. schema: columns of the table.
    """
    changes = [file for file in files if file.groups is None]
    if len(changes) < COMPACT_FILES:
        return None
    bucket_rows = sum(file.rows for file in files if file.groups is not None)
    if sum(file.rows for file in changes) * SHARE >= bucket_rows:
        return CompactionPlan(tuple(files), schema)
    runs = plan_joins(files)
    return JoinPlan(runs, schema) if runs else None


def compacted_buckets(
    sink: str, key: tuple[str, ...], store: ObjectStore, plan: CompactionPlan, owned: OwnedKeys
) -> BucketStaging:
    """Return the staging of one subtask's share of a compaction.

    The buckets contain no rows of the epoch. So the key groups may be computed from the table's own key, whichever key
    routes the epoch's rows.

    Args:
        store: rooted at the table. owned: keys of the subtask.
    """
    buckets = BucketPlan(plan.files, plan.schema, None, rewrites=True, keeps_changes=False)
    return BucketStaging(sink, key=key, routing_key=key, store=store, plan=buckets, owned=owned)


class CompactionStaging:
    """Stages the epoch's rows, and concurrently compacts the table as it was before the epoch.

    Args:
        staging: stages the epoch's rows. buckets: stages the compacted buckets, without rows of the epoch.
    """

    def __init__(self, staging: StagingSink, buckets: BucketStaging, store: ObjectStore) -> None:
        self._staging, self._buckets, self._store = staging, buckets, store

    def stage_pieces(self, pieces: Iterable[RowsPiece], context: StagingContext) -> StagedRows:
        half = context.with_half_budget()
        compaction = prefetch(self._store, lambda: self._buckets.stage_pieces((), half), "compaction")
        staged = self._staging.stage_pieces(pieces, half)
        compacted = compaction()
        return replace(staged, buckets=compacted.buckets, replaced=compacted.replaced)
