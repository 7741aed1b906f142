"""Lookup dimensions of an epoch: pinned objects of static sources, and copies of their rows.

The input record pins object versions. The first epoch that reads them stores a copy of their rows with its checkpoint.
Later epochs refer to that copy while the same versions are pinned and the source's spec reads them in the same way.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

from milepost.codec import Count, Sha256
from milepost.jobspec.job import SourceSpec
from milepost.protocol.records import ObjectHandle
from milepost.sources import SourceObject


@dataclass(frozen=True, slots=True)
class DimensionSnapshot:
    """Rows of a static source as an epoch used them for lookups.

    Attributes:
        objects: object versions that contain the rows, in plan order.
        read_as: digest of the parts of the source's spec that decide how objects are read.
        copy: Arrow file with all rows.
        rows: number of rows.
        bytes: size of the rows in memory.
    """

    objects: tuple[SourceObject, ...]
    read_as: Sha256
    copy: ObjectHandle
    rows: Count
    bytes: Count


@dataclass(frozen=True, slots=True)
class DimensionInput:
    """Planned lookup input of an epoch, for one static source.

    Attributes:
        objects: pinned versions, in plan order.
        recorded: for an epoch that a backfill replays, its recorded snapshot. None for other epochs.
    """

    objects: tuple[SourceObject, ...]
    recorded: DimensionSnapshot | None = None

    def is_in(self, snapshot: DimensionSnapshot, source: SourceSpec) -> bool:
        """Return whether a snapshot holds exactly these versions, read as the spec reads them."""
        return snapshot.objects == self.objects and snapshot.read_as == read_as(source)


def pinned(objects: tuple[SourceObject, ...]) -> DimensionInput:
    """Return a lookup input that pins these object versions."""
    return DimensionInput(tuple(replace(obj, planned_ms=None) for obj in objects))


def read_as(source: SourceSpec) -> str:
    """Return a digest of the spec fields that decide which rows an object of a static source has."""
    parts = source.model_dump(mode="json", include={"format", "options", "partitions", "columns"})
    return hashlib.sha256(json.dumps([parts, source.column_names], sort_keys=True).encode()).hexdigest()
