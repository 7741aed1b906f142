"""Ancestry: the retained checkpoints that a timeline or a checkpoint continues.

Subsumption leaves holes, so an ancestry cannot be found by following `parent` from checkpoint to checkpoint. It
consists of the timeline's own checkpoints, those of its parent timeline up to the branch point, and so on::

    main  1 - 2 - 3 - 4         timeline t9, parent (main, 2), head 6: limits {t9: 6, main: 2}
               \
    t9          5 - 6           its ancestry is 1, 2, 5, 6; after checkpoint 2 is subsumed, it is 1, 5, 6

A checkpoint belongs to the timeline on which it was completed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId, TimelineId
from milepost.protocol.records.manifest_state import ManifestState, Timeline, TimelineRole


def timeline_ancestry(state: ManifestState, timeline: Timeline) -> tuple[CompletedCheckpoint, ...]:
    """Return the retained checkpoints that a timeline's head continues, including the head, ascending."""
    return _before(state, timeline.timeline_id, timeline.head)


def checkpoint_ancestry(state: ManifestState, checkpoint_id: CheckpointId) -> tuple[CompletedCheckpoint, ...]:
    """Return the retained checkpoints that a checkpoint continues, including itself; () for 0 or an unknown id."""
    checkpoint = state.checkpoint(checkpoint_id)
    return () if checkpoint is None else _before(state, checkpoint.timeline, checkpoint_id)


def continues(state: ManifestState, timeline_id: TimelineId, checkpoint_id: CheckpointId) -> bool | None:
    """Return whether the live head continues a checkpoint, retained or not; None: its timeline is no longer listed."""
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
    """Return one line of checkpoints per abandoned timeline that was live, for retention to count.

    A line is the timeline's ancestry, followed by all checkpoints that the job completed live after that, as if the
    timeline had continued. What a fork completed before it became live is a replay and belongs to no line.

    Returns:
        The retained checkpoints of each line, ascending by id. A checkpoint may be on several lines.
    """
    live_from = {line.timeline_id: line.live_from for line in state.timelines if line.live_from is not None}
    completed_live = [
        checkpoint
        for checkpoint in state.checkpoints
        if checkpoint.checkpoint_id > live_from.get(checkpoint.timeline, checkpoint.checkpoint_id)
    ]
    return tuple(
        (
            *timeline_ancestry(state, timeline),
            *(later for later in completed_live if later.checkpoint_id > timeline.head),
        )
        for timeline in state.timelines
        if timeline.role is TimelineRole.ABANDONED and timeline.live_from is not None
    )


def shared_checkpoint(
    state: ManifestState, one: tuple[TimelineId, CheckpointId], other: tuple[TimelineId, CheckpointId]
) -> CheckpointId | None:
    """Return the newest checkpoint that two checkpoints continue, retained or not; None: unknown, or there is none.

    Example: timeline `t4` begins after checkpoint 2 of `main`::

        main   1  2  3
        t4           4  5      of 3 and 5 it is 2; of 4 and 5 it is 4; of 1 and 5 it is 1

    Args:
        one, other: each a checkpoint, and the timeline that it was completed on, or one that continues it.
    """
    these, those = (_limits(state, *_completed_on(state, *each)) for each in (one, other))
    shared = (min(these[timeline], those[timeline]) for timeline in these.keys() & those.keys())
    return max(shared, default=None)


def _completed_on(
    state: ManifestState, timeline_id: TimelineId, checkpoint_id: CheckpointId
) -> tuple[TimelineId, CheckpointId]:
    """Return a checkpoint that a timeline continues, with the timeline on which it was completed.

    A timeline's own checkpoints have greater ids than the one that it starts from.
    """
    parents = {timeline.timeline_id: timeline.parent for timeline in state.timelines}
    while (parent := parents.get(timeline_id)) is not None and checkpoint_id <= parent[1]:
        timeline_id = parent[0]
    return timeline_id, checkpoint_id


def _limits(state: ManifestState, timeline_id: TimelineId, newest: CheckpointId) -> dict[TimelineId, CheckpointId]:
    """Return, per timeline that a checkpoint's ancestry passes through, the newest checkpoint on it."""
    listed = {timeline.timeline_id: timeline for timeline in state.timelines}
    limits: dict[TimelineId, CheckpointId] = {}
    position: tuple[TimelineId, CheckpointId] | None = (timeline_id, newest)
    while position is not None and position[1] != NO_CHECKPOINT:
        limits[position[0]] = position[1]
        position = listed[position[0]].parent if position[0] in listed else None
    return limits


def owner_of(state: ManifestState, checkpoint_id: CheckpointId) -> TimelineId:
    """Return the timeline of a retained checkpoint; the live one for 0, the empty state."""
    checkpoint = state.checkpoint(checkpoint_id)
    return state.live if checkpoint is None else checkpoint.timeline


def open_forks(state: ManifestState) -> tuple[Timeline, ...]:
    """Return the open forks: timelines that sessions work on alongside the live one."""
    return tuple(timeline for timeline in state.timelines if timeline.role is TimelineRole.FORK)


def with_published(
    checkpoints: Collection[CompletedCheckpoint], required: Collection[CheckpointId]
) -> frozenset[CheckpointId]:
    """Return the required checkpoints and those that tables show while they wait for a required one.

    A sink moves its table by the difference to what the table shows. For an unconfirmed checkpoint that is its nearest
    ancestor that every sink has confirmed.
    """
    by_id = {checkpoint.checkpoint_id: checkpoint for checkpoint in checkpoints}
    needed = set(required)
    for checkpoint_id in required:
        checkpoint = by_id.get(checkpoint_id)
        while checkpoint is not None and checkpoint.unconfirmed:
            checkpoint = by_id.get(checkpoint.parent)
            needed |= set() if checkpoint is None else {checkpoint.checkpoint_id}
    return frozenset(needed)


def drop_empty_timelines(
    timelines: tuple[Timeline, ...], checkpoints: Collection[CompletedCheckpoint]
) -> tuple[Timeline, ...]:
    """Return the timelines without those that are abandoned and have no retained checkpoint.

    A child of a dropped timeline gets the dropped timeline's parent, so that its ancestry stays complete.
    """
    owners = {checkpoint.timeline for checkpoint in checkpoints}
    dropped = {
        timeline.timeline_id: timeline
        for timeline in timelines
        if timeline.role is TimelineRole.ABANDONED and timeline.timeline_id not in owners
    }
    remaining = []
    for timeline in timelines:
        if timeline.timeline_id in dropped:
            continue
        parent = timeline.parent
        while parent is not None and parent[0] in dropped and parent[1] != NO_CHECKPOINT:
            grandparent = dropped[parent[0]].parent
            if grandparent is None:
                break
            parent = grandparent
        remaining.append(timeline if parent == timeline.parent else replace(timeline, parent=parent))
    return tuple(remaining)
