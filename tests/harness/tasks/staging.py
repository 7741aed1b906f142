"""Staging of whole tables: what a task does with rows that come piece by piece."""

from __future__ import annotations

import pyarrow as pa

from milepost.dataflow.sinks.committables import Committable, RowsPiece, StagedFile
from milepost.dataflow.sinks.contract import PreparingSink, StagingSink


def stage(
    sink: StagingSink, rows: pa.Table, *, checkpoint_id: int, token: int, subtask: int, distinct: bool = False
) -> StagedFile | None:
    """Stage one table as one piece.

    Args:
        distinct: whether no two of the rows are known to have the same key.
    """
    pieces = [RowsPiece(rows, distinct)]
    return sink.stage_pieces(
        pieces, checkpoint_id=checkpoint_id, token=token, subtask=subtask, held_bytes=max(1, rows.nbytes)
    )


def stage_each(
    sink: PreparingSink, checkpoint_id: int, token: int, *tables: pa.Table, schema: pa.Schema
) -> Committable:
    """Stage one table per subtask, and collect them."""
    files = [stage(sink, one, checkpoint_id=checkpoint_id, token=token, subtask=i) for i, one in enumerate(tables)]
    return sink.committable(files, schema)
