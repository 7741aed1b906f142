"""A table's rows are staged once more, as files of another table, which takes its place.

The staging code is the tasks' own. A table of the latest rows becomes buckets of key groups, by the key hash of the
job's state, so that the epochs that follow build on them; any other keeps its rows in commit order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from milepost.jobspec.graph.graph import SinkInput
from milepost.jobspec.job.spec import SinkSpec
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.sinks.build import build_staging
from milepost.sinks.contract import Sink, SinkMode
from milepost.sinks.files.deletes import align_deletes
from milepost.sinks.files.file_cuts import cut_by_bytes
from milepost.sinks.files.table_files import Reading, TableFiles
from milepost.sinks.records.committables import Committable, RowsPiece, StagedFile, decode_schema
from milepost.sinks.records.contents import TableContents
from milepost.sinks.records.staging_context import StagingContext
from milepost.sinks.staging.table_buckets import BucketPlan, OwnedKeys

COPIED_BYTES = 64 << 20
"""So many bytes of a table's files become one file of its copy, and are held at once."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How a table is copied.

    Attributes:
        spec: of the sink at the new table, resolved. rows: what the sink reads.
        owned: all keys, as the job's state hashes them; of use for a table of the latest rows alone.
    """

    spec: SinkSpec
    rows: SinkInput
    owned: OwnedKeys


def stage_copy(
    old: Sink, contents: TableContents, new: Sink, plan: CopyPlan, owner: tuple[CheckpointId, FencingToken]
) -> Committable:
    """Stage the rows that a table has at a checkpoint below another table, where nobody sees them yet.

    A bucket of a table of the latest rows is held in memory, of others some files.

    Args:
        owner: the checkpoint and token that stage.
    Raises: StateCorrupt: a file of the old table is gone or altered. And what the stores raise.
    """
    schema = decode_schema(contents.schema)
    if new.by_buckets:
        pieces_of = enumerate(old.pieces(contents, verify=True), 1)  # by key, so no two of them have one
        parts: Iterator[Iterable[RowsPiece]] = iter([(RowsPiece(rows, True, part) for part, rows in pieces_of)])
        buckets = BucketPlan((), schema, plan.spec.buckets, rewrites=True, keeps_changes=False)
        staging = build_staging(plan.spec, plan.rows, new.store, buckets, plan.owned)
    else:
        files = TableFiles(old.name, old.store)

        def pieces(group: Sequence[StagedFile]) -> Iterator[RowsPiece]:
            tables = (files.fetch(file, Reading(schema, verify=True, deletes=True)) for file in group)
            return map(RowsPiece, align_deletes(tables) if new.mode is SinkMode.UPSERT else tables)

        parts = map(pieces, cut_by_bytes(old.files(contents), COPIED_BYTES))
        # What a changelog's rows are is in its columns already, and of the latest rows each file stays what it is.
        staging = build_staging(plan.spec.model_copy(update={"mode": "append"}), plan.rows, new.store, None, None)
    checkpoint_id, token = owner
    staged = [
        staging.stage_pieces(part, StagingContext(checkpoint_id, token, number, COPIED_BYTES))
        for number, part in enumerate(parts)
    ]
    return Committable(new.name, contents.schema, tuple(staged))
