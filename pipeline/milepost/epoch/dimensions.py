"""Dimensions are what an epoch looks rows up in: the pinned objects of a static source, and the copy of their rows.

The input record pins object versions. The epoch that reads them first leaves a copy of their rows with its checkpoint;
the epochs after it refer to that copy for as long as the same versions are pinned and are read in the same way.
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
    """What an epoch looked rows up in.

    Attributes:
        objects: versions whose rows they are, in plan order.
        read_as: digest of how the source's spec reads them.
        copy: all of their rows, an Arrow file. rows: how many. bytes: in memory.
    """

    objects: tuple[SourceObject, ...]
    read_as: Sha256
    copy: ObjectHandle
    rows: Count
    bytes: Count


@dataclass(frozen=True, slots=True)
class DimensionInput:
    """What an epoch is to look rows up in.

    Attributes:
        objects: pinned versions, in plan order.
        recorded: of an epoch that a backfill replays: what it had looked up in; None: of any other.
    """

    objects: tuple[SourceObject, ...]
    recorded: DimensionSnapshot | None = None

    def is_in(self, snapshot: DimensionSnapshot, source: SourceSpec) -> bool:
        """Return whether a checkpoint has the rows of these very versions, read as a spec reads them."""
        return snapshot.objects == self.objects and snapshot.read_as == read_as(source)


def pinned(objects: tuple[SourceObject, ...]) -> DimensionInput:
    """Return the input of an epoch that looks up in what these versions hold."""
    return DimensionInput(tuple(replace(obj, planned_ms=None) for obj in objects))


def read_as(source: SourceSpec) -> str:
    """Return a digest of what decides which rows an object of a static source has."""
    parts = source.model_dump(mode="json", include={"format", "options", "partitions", "columns"})
    ordered = [*source.columns, *source.partitions]
    return hashlib.sha256(json.dumps([parts, ordered], sort_keys=True).encode()).hexdigest()
