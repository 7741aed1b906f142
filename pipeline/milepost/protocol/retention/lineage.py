"""A lineage is the chain of retained checkpoints that a timeline consists of.

Subsumption leaves holes, so a lineage is not found by walking from checkpoint to parent: it is the timeline's own
checkpoints, those of its parent up to where it leaves it, and so on. A timeline owns what was completed on it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId, TimelineId
from milepost.protocol.records.manifest_state import ManifestState, Timeline, TimelineRole


def lineage(state: ManifestState, timeline: Timeline) -> tuple[CompletedCheckpoint, ...]:
    """Return the retained checkpoints that the head of a timeline continues, itself included, ascending."""
    return _before(state, timeline.timeline_id, timeline.head)


def ancestry(state: ManifestState, checkpoint_id: CheckpointId) -> tuple[CompletedCheckpoint, ...]:
    """Return the retained checkpoints that one checkpoint continues, itself included; () for 0 or an unknown one."""
    checkpoint = state.checkpoint(checkpoint_id)
    return () if checkpoint is None else _before(state, checkpoint.timeline, checkpoint_id)


def continues(state: ManifestState, timeline_id: TimelineId, checkpoint_id: CheckpointId) -> bool | None:
    """Return whether the live head continues a checkpoint of a timeline, retained or not; None: unknown by now."""
    live = state.timeline()
    if all(timeline.timeline_id != timeline_id for timeline in state.timelines):
        return None
    return checkpoint_id <= _limits(state, live.timeline_id, live.head).get(timeline_id, NO_CHECKPOINT)


def _before(state: ManifestState, timeline_id: TimelineId, newest: CheckpointId) -> tuple[CompletedCheckpoint, ...]:
    limits = _limits(state, timeline_id, newest)
    return tuple(
        checkpoint
        for checkpoint in state.checkpoints
        if checkpoint.checkpoint_id <= limits.get(checkpoint.timeline, NO_CHECKPOINT)
    )


def abandoned_lines(state: ManifestState) -> tuple[tuple[CompletedCheckpoint, ...], ...]:
    """Return a line of checkpoints for each abandoned timeline that was live: what retention counts for it.

    A line is the timeline's lineage, followed by whatever the job has completed live since, as if it had gone on from
    there. What a fork had completed before it became live is a replay, and follows no line.

    Returns: the retained checkpoints of each line, ascending by id; a checkpoint may be of several.
    """
    live_from = {one.timeline_id: one.live_from for one in state.timelines if one.live_from is not None}
    lived = [one for one in state.checkpoints if one.checkpoint_id > live_from.get(one.timeline, one.checkpoint_id)]
    return tuple(
        (*lineage(state, timeline), *(one for one in lived if one.checkpoint_id > timeline.head))
        for timeline in state.timelines
        if timeline.role is TimelineRole.ABANDONED and timeline.live_from is not None
    )


def _limits(state: ManifestState, timeline_id: TimelineId, newest: CheckpointId) -> dict[TimelineId, CheckpointId]:
    """Of each timeline that a checkpoint's lineage passes, the newest checkpoint that is on it."""
    listed = {timeline.timeline_id: timeline for timeline in state.timelines}
    limits: dict[TimelineId, CheckpointId] = {}
    where: tuple[TimelineId, CheckpointId] | None = (timeline_id, newest)
    while where is not None and where[0] in listed and where[1] != NO_CHECKPOINT:
        limits[where[0]] = where[1]
        where = listed[where[0]].parent
    return limits


def owner_of(state: ManifestState, checkpoint_id: CheckpointId) -> TimelineId:
    """Return the timeline that a retained checkpoint is of; the live one for 0, the empty state."""
    checkpoint = state.checkpoint(checkpoint_id)
    return state.live if checkpoint is None else checkpoint.timeline


def open_forks(state: ManifestState) -> tuple[Timeline, ...]:
    """Return the timelines that are worked on beside the live one."""
    return tuple(timeline for timeline in state.timelines if timeline.role is TimelineRole.FORK)


def with_published(
    checkpoints: Collection[CompletedCheckpoint], kept: Collection[CheckpointId]
) -> frozenset[CheckpointId]:
    """Return the kept checkpoints, and what the tables show that wait for one of them.

    A table moves by the difference to what it shows: of an unconfirmed checkpoint that is the nearest one before it
    which every sink has confirmed.
    """
    known = {checkpoint.checkpoint_id: checkpoint for checkpoint in checkpoints}
    needed = set(kept)
    for checkpoint_id in kept:
        checkpoint = known.get(checkpoint_id)
        while checkpoint is not None and checkpoint.unconfirmed:
            checkpoint = known.get(checkpoint.parent)
            needed |= set() if checkpoint is None else {checkpoint.checkpoint_id}
    return frozenset(needed)


def still_listed(timelines: tuple[Timeline, ...], checkpoints: Collection[CompletedCheckpoint]) -> tuple[Timeline, ...]:
    """Return the timelines without the abandoned ones of which nothing is retained.

    What had such a one for its parent gets the parent's parent, so that no lineage loses what is retained of it.
    """
    owners = {checkpoint.timeline for checkpoint in checkpoints}
    gone = {
        timeline.timeline_id: timeline
        for timeline in timelines
        if timeline.role is TimelineRole.ABANDONED and timeline.timeline_id not in owners
    }
    kept = []
    for timeline in timelines:
        if timeline.timeline_id in gone:
            continue
        parent = timeline.parent
        while parent is not None and parent[0] in gone and parent[1] != NO_CHECKPOINT:
            behind = gone[parent[0]].parent
            if behind is None:
                break
            parent = behind
        kept.append(timeline if parent == timeline.parent else replace(timeline, parent=parent))
    return tuple(kept)
