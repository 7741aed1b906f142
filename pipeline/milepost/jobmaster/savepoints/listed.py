"""List a job's savepoints from its manifest, without reading them."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.epoch import iso_ms
from milepost.errors import InvalidRequest, NotFound, StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records import (
    SAVEPOINT_DOCUMENT,
    CheckpointKind,
    ManifestState,
    ObjectStore,
    Savepoint,
    savepoint_root,
)
from milepost.storage import PrefixedStore


@dataclass(frozen=True, slots=True)
class ListedSavepoint:
    """A savepoint in the job's list. epoch, timeline: None once its checkpoint is no longer retained."""

    name: str
    kind: str
    checkpoint_id: int
    epoch: int | None
    timeline: str | None
    created: str
    location: str


def list_savepoints(context: JobContext) -> list[ListedSavepoint]:
    """Return the job's savepoints by name."""
    state = context.head().state
    return [_shown(context, state, savepoint) for savepoint in state.savepoints]


def find_savepoint(context: JobContext, name: str) -> ListedSavepoint:
    """Return one of the job's savepoints, as `list_savepoints` shows it. Raises NotFound."""
    state = context.head().state
    return _shown(context, state, savepoint_named(state, name))


def savepoint_named(state: ManifestState, name: str) -> Savepoint:
    """Return the listed savepoint of that name. Raises NotFound."""
    savepoint = next((item for item in state.savepoints if item.name == name), None)
    if savepoint is None:
        names = ", ".join(item.name for item in state.savepoints) or "none"
        raise NotFound(f"job {state.job} has no savepoint {name}; it has: {names}. Nothing was changed.", name=name)
    return savepoint


def savepoint_store(context: JobContext, savepoint: Savepoint) -> ObjectStore:
    """Return the store rooted at a listed savepoint. Raises StateCorrupt: the manifest has no valid location for it."""
    if savepoint.location is not None:
        return context.store_at(savepoint.location)
    creation, _, rest = savepoint.document.key.partition("/")
    try:
        prefix = savepoint_root(savepoint.name, creation)
    except InvalidRequest as error:
        raise StateCorrupt(f"savepoint {savepoint.name}: {error.message}", key=savepoint.document.key) from error
    if rest != SAVEPOINT_DOCUMENT:
        raise StateCorrupt(f"savepoint {savepoint.name}: {savepoint.document.key!r} is no {SAVEPOINT_DOCUMENT}.")
    return PrefixedStore(context.store, prefix)


def _shown(context: JobContext, state: ManifestState, savepoint: Savepoint) -> ListedSavepoint:
    checkpoint = state.checkpoint(savepoint.checkpoint_id)
    return ListedSavepoint(
        name=savepoint.name,
        kind=CheckpointKind.SAVEPOINT.value,
        checkpoint_id=int(savepoint.checkpoint_id),
        epoch=None if checkpoint is None else int(checkpoint.epoch),
        timeline=None if checkpoint is None else checkpoint.timeline,
        created=iso_ms(savepoint.created_ms),
        location=savepoint_store(context, savepoint).config.url,
    )
