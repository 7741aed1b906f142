"""Raise the floors of landed sources' logs. A floor never falls, and never passes what a checkpoint needs (L5, I8)."""

from __future__ import annotations

from collections.abc import Collection

from milepost.protocol.manifest.transaction.requests import FloorProposal
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.ids import NO_CHECKPOINT
from milepost.protocol.records.log_floors import LogFloor
from milepost.protocol.records.manifest_state import ManifestState, TimelineRole


def raise_floors(
    state: ManifestState, checkpoints: Collection[CompletedCheckpoint], proposal: FloorProposal | None
) -> tuple[LogFloor, ...]:
    """Return the floors after a subsumption: raised as proposed, or unchanged if the proposal is outdated.

    The metadata of a checkpoint is not read here. So a proposal counts only if it has respected every checkpoint that
    is retained now, those included that were completed or got a pin, a savepoint or a fork since. A timeline that has
    no checkpoint yet reads from the floor at which it began, and holds all floors until it has one.

    Args:
        state: at the head. checkpoints: that stay.
    """
    if proposal is None or _starts_empty(state):
        return state.floors
    if not {checkpoint.checkpoint_id for checkpoint in checkpoints} <= set(proposal.respected):
        return state.floors
    floors = {floor.source: floor for floor in state.floors}
    for floor in proposal.floors:
        current = floors.get(floor.source)
        if current is None or current.log != floor.log or current.next < floor.next:
            floors[floor.source] = floor
    return tuple(floors[source] for source in sorted(floors))


def _starts_empty(state: ManifestState) -> bool:
    """Return whether a timeline on which sessions work starts from checkpoint 0 and has no checkpoint of its own."""
    return any(
        timeline.head == NO_CHECKPOINT for timeline in state.timelines if timeline.role is not TimelineRole.ABANDONED
    )
