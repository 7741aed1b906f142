"""Rollback inputs: the objects that sources would deliver once more, and those they no longer can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from milepost.epoch.iso_times import iso_ms
from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import EnvironmentUnusable, StoreUnavailable
from milepost.jobmaster.job.context import JobContext
from milepost.sources.planning.listing import list_objects
from milepost.storage.open import open_store

Versions = dict[tuple[str, str], int]
"""(key, etag) -> bytes."""


@dataclass(frozen=True, slots=True)
class InputSize:
    """How much of a source is meant."""

    objects: int
    bytes: int


def consumed_since(
    context: JobContext, before: CheckpointMetadata | None, after: CheckpointMetadata | None
) -> Mapping[str, InputSize]:
    """Per source, the object versions that `after` has consumed and `before` has not."""
    return {name: _counted(versions) for name, versions in _since(context, before, after).items()}


def read_again(
    context: JobContext, now: CheckpointMetadata | None, then: CheckpointMetadata | None
) -> tuple[Mapping[str, InputSize], list[str]]:
    """Return what is new input again once the job is back at `then`, per source, and what of it is lost, in words.

    Lists each source once, and reads no data.
    """
    found: dict[str, InputSize] = {}
    lost = []
    for name, versions in _since(context, then, now).items():
        passed = passed_over(context, then, name)
        if passed is not None:
            lost.append(passed)
            continue
        found[name] = _counted(versions)
        lost += _lost(context, name, versions)
        lost += forgotten(now, then, name)
    return found, lost


def passed_over(context: JobContext, then: CheckpointMetadata | None, source: str) -> str | None:
    """Return why nothing of a source is read again once the job is back at `then`; None: what it consumed since is."""
    spec = context.spec.sources.get(source)
    if spec is None:
        return f"source {source} is not in the spec any more: nothing of it is read again"
    if spec.start == "latest" and (then is None or source not in then.sources):
        return f"source {source} starts at `latest`: what landed before the next epoch is passed over"
    return None


def forgotten(now: CheckpointMetadata | None, then: CheckpointMetadata | None, source: str) -> Iterator[str]:
    """Yield what of a source the job has forgotten since, in words."""
    horizon_ms = _horizon_ms(now, source)
    if horizon_ms is not None and horizon_ms != _horizon_ms(then, source):
        yield f"source {source}: of what was modified before {iso_ms(horizon_ms)}, nobody knows what is gone"


def _horizon_ms(metadata: CheckpointMetadata | None, source: str) -> int | None:
    return metadata.sources[source].horizon_ms if metadata is not None and source in metadata.sources else None


def _lost(context: JobContext, name: str, versions: Versions) -> list[str]:
    store, pattern = context.source(name)
    try:
        listed = {obj.key: obj.etag for obj in list_objects(open_store(store), pattern).objects}
    except (StoreUnavailable, EnvironmentUnusable) as error:
        return [f"source {name} does not answer, so nobody knows what of it can be read again: {error.message}"]
    gone = sorted(key for key, _ in versions if key not in listed)
    changed = sorted(key for key, etag in versions if listed.get(key, etag) != etag)
    lost = []
    if gone:
        lost.append(f"source {name}: {len(gone)} object(s) that would run again are gone, such as {gone[0]}")
    if changed:
        lost.append(f"source {name}: {len(changed)} object(s) have changed, such as {changed[0]}: read as they are now")
    return lost


def _since(
    context: JobContext, before: CheckpointMetadata | None, after: CheckpointMetadata | None
) -> dict[str, Versions]:
    found = {}
    for name in sorted(after.sources) if after is not None else ():
        known = _versions(context, before, name)
        fresh = {version: size for version, size in _versions(context, after, name).items() if version not in known}
        if fresh:
            found[name] = fresh
    return found


def _versions(context: JobContext, metadata: CheckpointMetadata | None, source: str) -> Versions:
    if metadata is None or source not in metadata.sources:
        return {}
    table = context.consumed(source, metadata.sources[source].consumed).table
    rows = zip(*(table[name].to_pylist() for name in ("key", "etag", "size")), strict=True)
    return {(key, etag): size for key, etag, size in rows}


def _counted(versions: Versions) -> InputSize:
    return InputSize(len(versions), sum(versions.values()))
