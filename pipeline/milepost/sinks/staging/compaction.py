"""A table of the latest rows in files of changes is compacted by the epoch's subtasks, before the commit point.

Our own format and the files that a table in Postgres shows are merged while they are read: an epoch adds files of
changes, and the last row of a key counts. Below them lie buckets, each of which has every key of some key groups::

    buckets  a 0..63, b 64..127     changes  c d e ... in commit order

Once there are `COMPACT_FILES` files of changes, an epoch does what pays:

* they have 1/`SHARE` of the rows of the buckets, or more: the subtasks that own the key groups write those buckets
  again of which a change has keys, without deletes, and all the changes go;
* they have fewer: neighbours among them are joined (`small_files.py`), and no bucket is touched.

So a row is written again at most `SHARE` + 1 times per changed row, and a few times more while changes are joined,
however large the table is; and deletes go at the latest when they are as many. The epoch's own changes are staged as
ever, and lie above.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.contract import StagingSink
from milepost.sinks.records.committables import RowsPiece, StagedFile, StagedRows
from milepost.sinks.records.staging_place import StagingPlace
from milepost.sinks.staging.bucket_staging import BucketStaging
from milepost.sinks.staging.small_files import JoinPlan, plan_joins
from milepost.sinks.staging.table_buckets import BucketPlan, OwnedKeys
from milepost.storage.concurrency.background import prefetch

COMPACT_FILES = 64
"""A table with at least so many files of changes is compacted by the next epoch."""

SHARE = 4
"""Of the rows of the buckets: with a quarter of them in changes the buckets are written again."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a table consists of, which one epoch writes as buckets.

    Attributes:
        files: in commit order. schema: columns of the table.
    """

    files: tuple[StagedFile, ...]
    schema: pa.Schema


MaintenancePlan = JoinPlan | CompactionPlan
"""What an epoch's subtasks make of the files that a table has; of a compaction each knows its key groups by itself."""


def plan_compaction(files: Sequence[StagedFile], schema: pa.Schema) -> MaintenancePlan | None:
    """Return what an epoch does to the files that a table has; None: they are few.

    Args:
        files: in commit order. schema: columns of the table.
    """
    changes = [file for file in files if file.groups is None]
    if len(changes) < COMPACT_FILES:
        return None
    buckets_rows = sum(file.rows for file in files if file.groups is not None)
    if sum(file.rows for file in changes) * SHARE >= buckets_rows:
        return CompactionPlan(tuple(files), schema)
    runs = plan_joins(files)
    return JoinPlan(runs, schema) if runs else None


def compacted_buckets(
    sink: str, key: tuple[str, ...], store: ObjectStore, plan: CompactionPlan, owned: OwnedKeys
) -> BucketStaging:
    """Return what writes a subtask's buckets of a table. No row of the epoch is in them, so each subtask may take those
    keys that have its key groups by the table's own key, whichever key routes the rows.

    Args:
        store: rooted at the table. owned: keys of the subtask.
    """
    buckets = BucketPlan(plan.files, plan.schema, None, rewrites=True, keeps_changes=False)
    return BucketStaging(sink, key=key, routing_key=key, store=store, plan=buckets, owned=owned)


class CompactionStaging:
    """Stages as another does, and beside it the buckets that a subtask makes of the table as it was before.

    Args:
        staging: stages the epoch's rows. buckets: of the table, without any rows of the epoch.
    """

    def __init__(self, staging: StagingSink, buckets: BucketStaging, store: ObjectStore) -> None:
        self._staging, self._buckets, self._store = staging, buckets, store

    def stage_pieces(self, pieces: Iterable[RowsPiece], place: StagingPlace) -> StagedRows:
        half = place.half()
        compacted = prefetch(self._store, lambda: self._buckets.stage_pieces((), half), "compaction")
        staged = self._staging.stage_pieces(pieces, half)
        made = compacted()
        return replace(staged, buckets=made.buckets, replaced=made.replaced)
