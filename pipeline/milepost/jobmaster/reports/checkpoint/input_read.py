"""The input of an epoch as reports tell it: the object versions that its trigger planned, source by source."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from milepost.epoch.iso_times import iso_ms
from milepost.epoch.plan import InputRecord, SourceInput, decode_input_record
from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.job.source_spec import SourceSpec
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.sources.planning.splits import count_indivisible_objects
from milepost.storage.object_handles import read_handle

NAMED_OBJECTS = 100
"""So many of a source's objects are named; all are counted."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """One object version that an epoch read. landed: when it was last modified."""

    object: str
    version: str
    bytes: int
    landed: str


@dataclass(frozen=True, slots=True)
class InputRead:
    """What an epoch was planned to read of a source.

    Attributes:
        objects: how many, of `bytes` in all. left: new objects that were left for later epochs, of `left_bytes`.
        first: the first of them, in the order in which they were read.
        whole: how many large ones have one reader each, by why, as the spec is now.
    """

    objects: int
    bytes: int
    left: int
    left_bytes: int
    first: tuple[PlannedObject, ...]
    whole: Mapping[str, int]


def input_read(context: JobContext, plan: ObjectHandle) -> Mapping[str, InputRead] | None:
    """Return an epoch's input by source; None where its record cannot be read, which `verify` names. One request."""
    try:
        record: InputRecord = decode_input_record(read_handle(context.store, plan))
    except CheckpointError as error:
        _LOG.warning("job %s: what the epoch read is not shown: %s", context.spec.name, error.message)
        return None
    return {item.name: _read(item, context.spec.sources.get(item.name)) for item in record.sources}


def _read(item: SourceInput, source: SourceSpec | None) -> InputRead:
    named = item.objects[:NAMED_OBJECTS]
    return InputRead(
        objects=len(item.objects),
        bytes=sum(obj.size for obj in item.objects),
        left=item.pending_objects,
        left_bytes=item.pending_bytes,
        first=tuple(PlannedObject(one.key, one.etag, one.size, iso_ms(one.last_modified_ms)) for one in named),
        whole={} if source is None else count_indivisible_objects(source, item.objects),
    )
