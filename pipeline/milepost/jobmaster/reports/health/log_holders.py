"""Name what holds the oldest landed records of each source (L5)."""

from __future__ import annotations

from collections.abc import Iterable

from milepost.epoch import CheckpointMetadata
from milepost.errors import StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.language.times import format_duration
from milepost.protocol.landed import floor_of
from milepost.protocol.manifest.upkeep import holds_every_floor
from milepost.protocol.records import CheckpointId, CompletedCheckpoint, ManifestState
from milepost.protocol.retention import open_forks
from milepost.storage.concurrency import parallel_map


def log_holders(context: JobContext, state: ManifestState) -> dict[str, str]:
    """Return, per landed source, why its oldest retained record is not deleted, as text.

    Of two checkpoints on a line the older one has read less. So only checkpoints without a retained parent are read,
    which usually is one.
    """
    if not context.spec.landed or not state.checkpoints:
        return {}
    if holds_every_floor(state):
        return dict.fromkeys(context.spec.landed, "a timeline that begins with the empty state")
    oldest = [item for item in state.checkpoints if state.checkpoint(item.parent) is None]

    def read(checkpoint: CompletedCheckpoint) -> CheckpointMetadata | None:
        try:
            return context.metadata(checkpoint)
        except StateCorrupt:
            return None

    with_metadata = list(zip(oldest, parallel_map(context.store, read, oldest), strict=True))
    return {source: _holder(context, state, source, with_metadata) for source in context.spec.landed}


def _holder(
    context: JobContext,
    state: ManifestState,
    source: str,
    oldest: Iterable[tuple[CompletedCheckpoint, CheckpointMetadata | None]],
) -> str:
    log = context.stored_name(source)
    floor = floor_of(state, log)
    first = 2 if floor is None else floor.next
    for checkpoint, metadata in oldest:
        position = None if metadata is None else metadata.log_position(log)
        if position is None or position.next <= first:
            return f"checkpoint {checkpoint.checkpoint_id} ({_reason(state, checkpoint.checkpoint_id)})"
    retain = format_duration(context.spec.landed[source].land.retain)
    return f"land.retain ({retain}), until the next checkpoint is dropped"


def _reason(state: ManifestState, checkpoint_id: CheckpointId) -> str:
    """Return what retains a checkpoint: a savepoint, a pin, an open fork, or the policy."""
    reasons = [f"savepoint {item.name}" for item in state.savepoints if item.checkpoint_id == checkpoint_id]
    reasons += [f"pin {pin.name}" for pin in state.pins if pin.checkpoint_id == checkpoint_id]
    reasons += [
        f"fork {fork.timeline_id}" for fork in open_forks(state) if fork.parent and fork.parent[1] == checkpoint_id
    ]
    return ", ".join(reasons) or "checkpointing.retained"
