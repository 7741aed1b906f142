"""Report the static sources of a checkpoint, in which its epoch looked up rows."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.epoch import DimensionSnapshot, iso_ms
from milepost.protocol.records import checkpoint_of_key


@dataclass(frozen=True, slots=True)
class PinnedObject:
    """One object version. landed: when it was last modified."""

    object: str
    version: str
    bytes: int
    landed: str


@dataclass(frozen=True, slots=True)
class StaticSourceDetails:
    """A static source as of one epoch; see `DimensionSnapshot`.

    Attributes:
        objects: the versions that the trigger pinned. newest_object: when the newest of them landed.
        rows: of all objects. bytes: of the rows in memory.
        copy_bytes: of the stored copy. copied_by: the checkpoint that stores the copy.
    """

    objects: tuple[PinnedObject, ...]
    newest_object: str
    rows: int
    bytes: int
    copy_bytes: int
    copied_by: int | None


def static_source_details(snapshot: DimensionSnapshot) -> StaticSourceDetails:
    """Return the report of a static source in a checkpoint."""
    objects = tuple(PinnedObject(obj.key, obj.etag, obj.size, iso_ms(obj.last_modified_ms)) for obj in snapshot.objects)
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
    """Return when the newest object landed, in ms; 0 without objects."""
    return max((obj.last_modified_ms for obj in snapshot.objects), default=0)
