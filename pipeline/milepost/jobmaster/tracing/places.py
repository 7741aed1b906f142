"""Where input rows are stored: object and line, row of a Parquet object, or partition and offset of a message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import pyarrow as pa

from milepost.epoch import OBJECT, RECORD
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.tracing.origin import Place
from milepost.jobmaster.tracing.replay import EPOCH, ReadEpoch
from milepost.sources import SourceObject, record_lines
from milepost.storage import open_store


def find_places(context: JobContext, source: str, rows: pa.Table, epochs: Sequence[ReadEpoch]) -> tuple[Place, ...]:
    """Return the place of each row. The objects of these rows are read again to count lines.

    Args:
        rows: with the columns `EPOCH`, `OBJECT` and `RECORD`.
    Raises: CommitConflict, NotFound: an object was changed or deleted.
    """
    if not rows.num_rows:
        return ()
    ids = [*zip(*(rows.column(name).to_pylist() for name in (EPOCH, OBJECT, RECORD)), strict=True)]
    records: dict[tuple[int, str], list[int]] = {}
    for epoch, key, record in ids:
        records.setdefault((epoch, key), []).append(record)
    lines = {at: _lines(context, source, _object(epochs, source, *at), of_object) for at, of_object in records.items()}
    return tuple(Place(source, epoch, key, lines[epoch, key].get(record), record + 1) for epoch, key, record in ids)


def _lines(context: JobContext, source: str, obj: SourceObject, records: Iterable[int]) -> dict[int, int]:
    """Return the line at which each record of an object begins; {} for an object without lines."""
    wanted = set(records)
    spec = context.spec.sources[source]
    if spec.is_landed:
        return {}
    lines = record_lines(source, spec, open_store(context.source_store(source)), obj)
    return {number: line for number, line in enumerate(islice(lines, max(wanted) + 1)) if number in wanted}


def _object(epochs: Sequence[ReadEpoch], source: str, checkpoint_id: int, key: str) -> SourceObject:
    return next(
        obj
        for epoch in epochs
        if epoch.plan.checkpoint_id == checkpoint_id
        for item in epoch.plan.inputs
        if item.name == source
        for obj in item.objects
        if obj.key == key
    )
