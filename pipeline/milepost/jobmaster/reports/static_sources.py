"""Static sources as reports tell them: what an epoch looked rows up in, and what their paths name now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.epoch.dimensions import DimensionSnapshot
from milepost.epoch.iso_times import iso_ms
from milepost.epoch.metadata import CheckpointMetadata
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.next_dimensions import dimension_inputs, plan_dimension
from milepost.protocol.records.errors import InvalidRequest
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


@dataclass(frozen=True, slots=True)
class StaticSourceHealth:
    """What is looked up in, and what the next epoch would.

    Attributes:
        held: what the head's epoch looked up in; None: it had no such source. age_ms: of its newest object.
        changed: whether the path names other versions now, which the next epoch reads.
        refused: why the next epoch would be refused, and what to do; None: it would not.
    """

    path: str
    held: StaticSourceDetails | None
    age_ms: int | None
    changed: bool
    refused: str | None


def static_source_details(snapshot: DimensionSnapshot) -> StaticSourceDetails:
    """Return what a checkpoint says of a static source."""
    objects = tuple(PinnedObject(one.key, one.etag, one.size, iso_ms(one.last_modified_ms)) for one in snapshot.objects)
    copied_by = checkpoint_of_key(snapshot.copy.key)
    return StaticSourceDetails(
        objects=objects,
        newest_object=iso_ms(_newest_ms(snapshot)),
        rows=snapshot.rows,
        bytes=snapshot.bytes,
        copy_bytes=snapshot.copy.size,
        copied_by=None if copied_by is None else int(copied_by),
    )


def static_sources(
    context: JobContext, base: CheckpointMetadata | None, now_ms: int
) -> Mapping[str, StaticSourceHealth]:
    """Return the health of each static source of a spec. Lists each once."""
    known = {} if base is None else base.dimensions
    return {name: _health(context, name, known.get(name), now_ms) for name in sorted(context.spec.dimensions)}


def _health(context: JobContext, name: str, held: DimensionSnapshot | None, now_ms: int) -> StaticSourceHealth:
    spec, refused, changed = context.spec.sources[name], None, False
    try:
        found = dimension_inputs({name: plan_dimension(context, name)})[name]
        changed = held is not None and not found.is_in(held, spec)
    except InvalidRequest as error:
        refused = f"{' '.join(error.message.split())} {error.hint}".strip()
    return StaticSourceHealth(
        path=spec.path,
        held=None if held is None else static_source_details(held),
        age_ms=None if held is None else max(0, now_ms - _newest_ms(held)),
        changed=changed,
        refused=refused,
    )


def _newest_ms(snapshot: DimensionSnapshot) -> int:
    return max((one.last_modified_ms for one in snapshot.objects), default=0)
