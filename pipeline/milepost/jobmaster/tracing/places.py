"""Find the location of input rows: object and line, row of a Parquet object, or partition and offset of a message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import pyarrow as pa

from milepost.epoch import OBJECT, RECORD, RecordPlace
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.tracing.origin import Place
from milepost.jobmaster.tracing.replay import EPOCH, ReadEpoch
from milepost.language import SOURCE_FORMATS
from milepost.protocol.records import ObjectHandle
from milepost.sources import record_places
from milepost.storage import immutable_objects, open_store


def find_places(context: JobContext, source: str, rows: pa.Table, epochs: Sequence[ReadEpoch]) -> tuple[Place, ...]:
    """Return the location of each row. Reads the objects of these rows again, to count lines.

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
    places = {at: _of_object(context, source, epochs, at, of_object) for at, of_object in records.items()}
    return tuple(places[epoch, key][record] for epoch, key, record in ids)


def _of_object(
    context: JobContext, source: str, epochs: Sequence[ReadEpoch], at: tuple[int, str], records: Iterable[int]
) -> dict[int, Place]:
    """Return the locations of some records of one object, by number of the record."""
    wanted, (checkpoint_id, key) = set(records), at
    spec = context.spec.sources[source]
    epoch = next(epoch for epoch in epochs if epoch.plan.checkpoint_id == checkpoint_id)
    obj = next(obj for item in epoch.plan.inputs if item.name == source for obj in item.objects if obj.key == key)
    bad = frozenset[RecordPlace]().union(*(split.bad.get(key, ()) for split in epoch.splits if split.source == source))
    store = open_store(context.source_store(source))
    if spec.is_landed:
        store = immutable_objects(store, [ObjectHandle(obj.key, obj.size, obj.etag)])
    every = record_places(source, spec, store, obj)
    readable = (place for place in every if place not in bad)
    found = {number: place for number, place in enumerate(islice(readable, max(wanted) + 1)) if number in wanted}
    has_lines = spec.layout.messages is None and SOURCE_FORMATS[spec.layout.format].has_lines
    return {number: _place(source, checkpoint_id, key, place, has_lines) for number, place in found.items()}


def _place(source: str, checkpoint_id: int, key: str, place: RecordPlace, has_lines: bool) -> Place:
    if isinstance(place, tuple):
        return Place(source, checkpoint_id, key, message=place)
    if has_lines:
        return Place(source, checkpoint_id, key, line=place)
    return Place(source, checkpoint_id, key, row=place)
