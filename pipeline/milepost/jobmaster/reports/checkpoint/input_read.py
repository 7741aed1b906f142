"""Report the object versions that an epoch's trigger planned, by source."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from milepost.codec import OmitNone
from milepost.epoch import InputRecord, SourceInput, decode_input_record, iso_ms
from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.job import SourceSpec
from milepost.protocol.landed import LandedRange
from milepost.protocol.records import ObjectHandle
from milepost.sources.planning import count_indivisible_objects
from milepost.storage import read_handle

NAMED_OBJECTS = 100
"""Maximum number of objects listed per source. All are counted."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """One object version that an epoch read. landed: when it was last modified."""

    object: str
    version: str
    bytes: int
    landed: str


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """The records of a source's log that an epoch read.

    Attributes:
        log: id of the log. first, last: sequences, inclusive. position: of the external system, after the last one.
        gaps: how many of the records are gaps: data that was lost before it was landed.
        voids: how many of the records say that records before them were false. skipped: how many were not read, because
            they are void.
    """

    log: str
    first: int
    last: int
    position: Any
    gaps: int
    voids: int
    skipped: int


@dataclass(frozen=True, slots=True)
class InputRead:
    """The planned input of an epoch from one source.

    Attributes:
        objects: count, of `bytes` in total. left: count of new objects left for later epochs, of `left_bytes`.
        first: the first objects, in reading order.
        whole: count of large objects that cannot be split, by reason, according to the current spec.
        records: of a landed source; omitted for files, and if the epoch read none.
    """

    objects: int
    bytes: int
    left: int
    left_bytes: int
    first: tuple[PlannedObject, ...]
    whole: Mapping[str, int]
    records: OmitNone[RecordsRead] = None


def input_read(context: JobContext, plan: ObjectHandle) -> Mapping[str, InputRead] | None:
    """Return an epoch's input by source, in one request; None: its record is unreadable, which `verify` reports."""
    try:
        record: InputRecord = decode_input_record(read_handle(context.store, plan))
    except CheckpointError as error:
        _LOG.warning("job %s: cannot show what the epoch read: %s", context.spec.name, error.message)
        return None
    return {item.name: _read(item, context.spec.sources.get(item.name)) for item in record.sources}


def _read(item: SourceInput, source: SourceSpec | None) -> InputRead:
    listed = item.objects[:NAMED_OBJECTS]
    return InputRead(
        objects=len(item.objects),
        bytes=sum(obj.size for obj in item.objects),
        left=item.pending_objects,
        left_bytes=item.pending_bytes,
        first=tuple(PlannedObject(obj.key, obj.etag, obj.size, iso_ms(obj.last_modified_ms)) for obj in listed),
        whole={} if source is None else count_indivisible_objects(source, item.objects),
        records=None if item.landed is None else _records(item.landed),
    )


def _records(landed: LandedRange) -> RecordsRead:
    counts = landed.gaps, landed.voids, landed.skipped
    return RecordsRead(landed.end.log, landed.first, landed.end.next - 1, landed.end.at, *counts)
