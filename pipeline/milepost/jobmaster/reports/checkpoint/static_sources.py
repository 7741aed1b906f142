"""Static sources of a checkpoint: what its epoch looked rows up in."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.epoch.dimensions import DimensionSnapshot
from milepost.epoch.iso_times import iso_ms
from milepost.protocol.records.layout import checkpoint_of_key


@dataclass(frozen=True, slots=True)
class PinnedObject:
    """One object version. landed: when it was last modified."""

    object: str
    version: str
    bytes: int
    landed: str


@dataclass(frozen=True, slots=True)
class StaticSourceDetails:
    """What an epoch looked rows up in; see `DimensionSnapshot`.

    Attributes:
        objects: the versions that its trigger pinned. newest_object: when the newest of them landed.
        rows: of all of them. bytes: of the rows in memory.
        copy_bytes: of their copy. copied_by: the checkpoint that it lies with.
    """

    objects: tuple[PinnedObject, ...]
    newest_object: str
    rows: int
    bytes: int
    copy_bytes: int
    copied_by: int | None


def static_source_details(snapshot: DimensionSnapshot) -> StaticSourceDetails:
    """Return what a checkpoint says of a static source."""
    objects = tuple(PinnedObject(one.key, one.etag, one.size, iso_ms(one.last_modified_ms)) for one in snapshot.objects)
    copied_by = checkpoint_of_key(snapshot.copy.key)
    return StaticSourceDetails(
        objects=objects,
        newest_object=iso_ms(newest_ms(snapshot)),
        rows=snapshot.rows,
        bytes=snapshot.bytes,
        copy_bytes=snapshot.copy.size,
        copied_by=None if copied_by is None else int(copied_by),
    )


def newest_ms(snapshot: DimensionSnapshot) -> int:
    """Return when the newest of its objects landed; 0: it has none."""
    return max((one.last_modified_ms for one in snapshot.objects), default=0)
