"""Compute which source objects a rollback would read again, and which are lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from milepost.epoch import CheckpointMetadata, counted, iso_ms
from milepost.errors import EnvironmentUnusable, StoreUnavailable
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.table_files import lost_table_files
from milepost.protocol.landed import position_text
from milepost.sources.planning import list_objects
from milepost.storage import open_store

ObjectVersions = dict[tuple[str, str], int]
"""(key, etag) -> bytes."""


@dataclass(frozen=True, slots=True)
class InputSize:
    """Number and total size of some objects of a source."""

    objects: int
    bytes: int


def consumed_since(
    context: JobContext, before: CheckpointMetadata | None, after: CheckpointMetadata | None
) -> Mapping[str, InputSize]:
    """Return, per source, the size of the input that `after` has consumed and `before` has not."""
    sizes = {name: _input_size(versions) for name, versions in _consumed_between(context, before, after).items()}
    return sizes | landed_between(context, before, after)


def replayed_input(
    context: JobContext, now: CheckpointMetadata | None, then: CheckpointMetadata | None
) -> tuple[Mapping[str, InputSize], list[str]]:
    """Return, per source, the input that is new again once the job is back at `then`, and what of it is lost, as text.

    Lists each source once, and reads no data.
    """
    replayed: dict[str, InputSize] = {}
    lost = []
    for name, versions in _consumed_between(context, then, now).items():
        reason = skip_reason(context, then, name)
        if reason is not None:
            lost.append(reason)
            continue
        replayed[name] = _input_size(versions)
        lost += _lost_objects(context, name, versions)
        lost += forgotten_input(now, then, name)
    for name, size in landed_between(context, then, now).items():
        reason = skip_reason(context, then, name)
        if reason is not None:
            lost.append(reason)
            continue
        replayed[name] = size
        lost += [*deleted_records(context, then, name), *lost_files(context, then, name)]
    return replayed, lost


def landed_between(
    context: JobContext, before: CheckpointMetadata | None, after: CheckpointMetadata | None
) -> dict[str, InputSize]:
    """Return, per landed source, the size of the retained records of its log that `after` has read and `before` not.

    All timelines read one log, so of two checkpoints one has read everything that the other has.
    """
    sizes = {}
    for name, source in after.sources.items() if after is not None else ():
        if source.position is None:
            continue
        log = source.stored_as or name
        start = (None if before is None else before.log_position(log)) or context.stored_log(log).floor
        objects, size = (0, 0) if start is None else (start.total_objects, start.total_bytes)
        if source.position.total_objects > objects:
            sizes[name] = InputSize(source.position.total_objects - objects, source.position.total_bytes - size)
    return sizes


def deleted_records(context: JobContext, then: CheckpointMetadata | None, source: str) -> Iterator[str]:
    """Yield, as text, which input before the retained records of a log is not read again from `then`."""
    log = context.source_log(source)
    if then is not None and then.log_position(log.stored_as) is not None:
        return
    newest = log.newest()
    first = 1 if newest is None else log.first(newest)
    if first > 1:
        at, why = log.record(first).record.start, "deleted (`land.retain`)" if log.floor else "not restored"
        yield (
            f"source {source}: the records before {first} of its log were {why}. What the external system had up to "
            f"{position_text(at)} is not read again"
        )


def lost_files(context: JobContext, then: CheckpointMetadata | None, source: str) -> Iterator[str]:
    """Yield, as text, which data files that a log refers to cannot be read again from `then`."""
    try:
        position = None if then is None else then.log_position(context.stored_name(source))
        lost = lost_table_files(context, source, position)
    except (StoreUnavailable, EnvironmentUnusable) as error:
        yield f"source {source}: its table does not answer, so what can be read again is unknown: {error.message}"
        return
    if lost:
        yield (
            f"source {source}: {len(lost)} data file(s) of its table to read again were deleted or replaced, such as "
            f"{lost[0]}: no epoch starts until they are back"
        )


def skip_reason(context: JobContext, then: CheckpointMetadata | None, source: str) -> str | None:
    """Return why a source is not read again once the job is back at `then`; None if it is."""
    spec = context.spec.sources.get(source)
    if spec is None:
        return f"source {source} is no longer in the spec: nothing of it is read again"
    if spec.starts_at_latest and (then is None or source not in then.sources):
        return f"source {source} starts at `latest`: objects that landed before the next epoch are skipped"
    return None


def forgotten_input(now: CheckpointMetadata | None, then: CheckpointMetadata | None, source: str) -> Iterator[str]:
    """Yield, as text, which part of a source's history the job has forgotten since `then`."""
    horizon_ms = _horizon_ms(now, source)
    if horizon_ms is not None and horizon_ms != _horizon_ms(then, source):
        yield f"source {source}: whether objects modified before {iso_ms(horizon_ms)} were deleted is unknown"


def _horizon_ms(metadata: CheckpointMetadata | None, source: str) -> int | None:
    return metadata.sources[source].horizon_ms if metadata is not None and source in metadata.sources else None


def _lost_objects(context: JobContext, name: str, versions: ObjectVersions) -> list[str]:
    store, pattern = context.source(name)
    try:
        listed = {obj.key: obj.etag for obj in list_objects(open_store(store), pattern).objects}
    except (StoreUnavailable, EnvironmentUnusable) as error:
        return [f"source {name} does not answer, so what can be read again is unknown: {error.message}"]
    deleted = sorted(key for key, _ in versions if key not in listed)
    changed = sorted(key for key, etag in versions if listed.get(key, etag) != etag)
    lost = []
    if deleted:
        lost.append(
            f"source {name}: deleted, so not read again: {counted(len(deleted), 'object')}, such as {deleted[0]}"
        )
    if changed:
        lost.append(
            f"source {name}: changed, and read again as now: {counted(len(changed), 'object')}, such as {changed[0]}"
        )
    return lost


def _consumed_between(
    context: JobContext, before: CheckpointMetadata | None, after: CheckpointMetadata | None
) -> dict[str, ObjectVersions]:
    """Return, per source, the versions that `after` has consumed and `before` has not.

    Versions are compared by key and etag. If `before` consumed ("a", "1") and `after` consumed ("a", "1") and
    ("a", "2"), then ("a", "2") is new.
    """
    by_source = {}
    for name in sorted(after.sources) if after is not None else ():
        versions_before = _versions(context, before, name)
        versions_after = _versions(context, after, name)
        new = {version: size for version, size in versions_after.items() if version not in versions_before}
        if new:
            by_source[name] = new
    return by_source


def _versions(context: JobContext, metadata: CheckpointMetadata | None, source: str) -> ObjectVersions:
    if metadata is None or source not in metadata.sources:
        return {}
    table = context.consumed(source, metadata.sources[source].consumed).table
    rows = zip(*(table[name].to_pylist() for name in ("key", "etag", "size")), strict=True)
    return {(key, etag): size for key, etag, size in rows}


def _input_size(versions: ObjectVersions) -> InputSize:
    return InputSize(len(versions), sum(versions.values()))
