"""Raise the floors of landed sources' logs. A floor never falls, and never passes what a checkpoint needs (L5, I8)."""

from __future__ import annotations

from collections.abc import Collection

from milepost.protocol.manifest.transaction.requests import FloorProposal
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.ids import NO_CHECKPOINT
from milepost.protocol.records.log_positions import LogFloor
from milepost.protocol.records.manifest_state import ManifestState, TimelineRole


def raised_floors(
    state: ManifestState, checkpoints: Collection[CompletedCheckpoint], proposal: FloorProposal | None
) -> tuple[LogFloor, ...] | None:
    """Return the floors after a subsumption, raised as proposed; None: the proposal is outdated.

    The metadata of a checkpoint is not read here. So a proposal counts only if it has respected every checkpoint that
    is retained now, those included that were completed or got a pin, a savepoint or a fork since.

    Args:
        state: at the head. checkpoints: that stay.
    """
    if proposal is None:
        return state.floors
    is_known = {checkpoint.checkpoint_id for checkpoint in checkpoints} <= set(proposal.respected)
    if not is_known or holds_every_floor(state):
        return None
    floors = {floor.source: floor for floor in state.floors}
    for floor in proposal.floors:
        current = floors.get(floor.source)
        if current is not None and current.log != floor.log:
            return None
        if current is None or current.next < floor.next:
            floors[floor.source] = floor
    return tuple(floors[source] for source in sorted(floors))


def holds_every_floor(state: ManifestState) -> bool:
    """Return whether a timeline on which sessions work starts from checkpoint 0 and has no checkpoint of its own.

    It reads from the floor at which it began, until it has one.
    """
    return any(
        timeline.head == NO_CHECKPOINT for timeline in state.timelines if timeline.role is not TimelineRole.ABANDONED
    )
