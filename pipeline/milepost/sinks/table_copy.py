"""Copy a table's rows into staged files of another table that will replace it.

This uses the staging code of tasks. An upsert table becomes buckets of key groups, by the key hash of the job's state,
so that later epochs can merge into them. Any other table keeps its rows in commit order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from milepost.jobspec.graph import SinkInput
from milepost.jobspec.job import SinkSpec
from milepost.protocol.records import CheckpointId, FencingToken
from milepost.sinks.buckets.table_buckets import BucketPlan, OwnedKeys
from milepost.sinks.build import build_staging
from milepost.sinks.contract import Sink, SinkMode
from milepost.sinks.parquet_files.deletes import align_deletes
from milepost.sinks.parquet_files.file_cuts import cut_by_bytes
from milepost.sinks.parquet_files.table_files import ReadOptions, TableFiles
from milepost.tables.records import Committable, RowsPiece, StagedFile, StagingContext, TableContents, decode_schema

COPIED_BYTES = 64 << 20
"""Size of the input files that become one file of the copy, and that are held in memory."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How a table is copied.

    Attributes:
        spec: of the sink with the new table, resolved. rows: what the sink reads.
        owned: all keys, as the job's state hashes them; used for an upsert table only.
    """

    spec: SinkSpec
    rows: SinkInput
    owned: OwnedKeys


def stage_copy(
    old: Sink, contents: TableContents, new: Sink, plan: CopyPlan, owner: tuple[CheckpointId, FencingToken]
) -> Committable:
    """Stage the rows of a table at a checkpoint below another table. They are not visible yet.

    One bucket of an upsert table, or some files of another table, are held in memory.

    Args:
        owner: the checkpoint and token that stage.
    Raises: StateCorrupt: a file of the old table is missing or altered. Also what the stores raise.
    """
    schema = decode_schema(contents.schema)
    if new.by_buckets:
        numbered = enumerate(old.pieces(contents, verify=True), 1)  # sorted by key, so no two pieces share a key
        parts: Iterator[Iterable[RowsPiece]] = iter([(RowsPiece(rows, True, part) for part, rows in numbered)])
        buckets = BucketPlan((), schema, plan.spec.buckets, rewrites=True, keeps_changes=False)
        staging = build_staging(plan.spec, plan.rows, new.store, buckets, plan.owned)
    else:
        files = TableFiles(old.name, old.store)

        def pieces(group: Sequence[StagedFile]) -> Iterator[RowsPiece]:
            tables = (files.fetch(file, ReadOptions(schema, verify=True, deletes=True)) for file in group)
            return map(RowsPiece, align_deletes(tables) if new.mode is SinkMode.UPSERT else tables)

        parts = map(pieces, cut_by_bytes(old.files(contents), COPIED_BYTES))
        # Append, because a changelog already has its `_op` column, and an upsert table's change files stay as they are.
        staging = build_staging(plan.spec.model_copy(update={"mode": "append"}), plan.rows, new.store, None, None)
    checkpoint_id, token = owner
    staged = [
        staging.stage_pieces(part, StagingContext(checkpoint_id, token, number, COPIED_BYTES))
        for number, part in enumerate(parts)
    ]
    return Committable(new.name, contents.schema, tuple(staged))
