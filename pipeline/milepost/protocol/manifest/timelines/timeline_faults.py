"""Timeline faults name what is wrong with a manifest value's timelines and unfinished switch."""

from __future__ import annotations

from milepost.protocol.records.manifest_state import JobStatus, ManifestState, Timeline, TimelineRole


def timeline_faults(state: ManifestState, timeline: Timeline) -> list[str]:
    """Return what is wrong with one timeline."""
    found = _role_faults(state, timeline)
    name = f"timeline {timeline.timeline_id}"
    if timeline.leader is not None and timeline.leader.token > state.version:
        found.append(f"I3: {name}: token {timeline.leader.token} must not be above version {state.version}")
    pending = timeline.pending
    if pending is None:
        return found
    if timeline.leader is None or timeline.leader.token != pending.token:
        found.append(f"I3: {name}: the leader must hold the pending checkpoint's token, {pending.token}")
    if not timeline.head < pending.checkpoint_id < state.next_checkpoint_id:
        found.append(f"I5: {name}: pending {pending.checkpoint_id} must lie between its head and the next id")
    if pending.base != timeline.head:
        found.append(f"{name}: pending {pending.checkpoint_id} must continue the head, {timeline.head}")
    if not pending.prefixes or list(pending.prefixes) != sorted(set(pending.prefixes)):
        found.append(f"I3: {name}: tokens {pending.prefixes} must rise strictly")
    elif pending.prefixes[-1] != pending.token:
        found.append(f"I3: {name}: the newest of tokens {pending.prefixes} must be in force, not {pending.token}")
    return found


def _role_faults(state: ManifestState, timeline: Timeline) -> list[str]:
    """A timeline is live, open or history; its head is retained unless it is history."""
    found = []
    name = f"timeline {timeline.timeline_id}"
    if (timeline.role is TimelineRole.LIVE) != (timeline.timeline_id == state.live):
        found.append(f"{name}: it is {timeline.role.value}, and the live one is {state.live}")
    if timeline.frozen is not None and timeline.role is not TimelineRole.LIVE:
        found.append(f"{name}: it is {timeline.role.value}, and only the live one may be frozen")
    if timeline.role is not TimelineRole.ABANDONED and (timeline.live_from is None) != (
        timeline.role is TimelineRole.FORK
    ):
        found.append(f"{name}: it is {timeline.role.value}, and says that it has been live from {timeline.live_from}")
    if timeline.role is TimelineRole.ABANDONED:
        if timeline.leader is not None or timeline.pending is not None:
            found.append(f"I3: {name}: it is abandoned and must have neither a leader nor a pending checkpoint")
        if all(checkpoint.timeline != timeline.timeline_id for checkpoint in state.checkpoints):
            found.append(f"{name}: it is abandoned and nothing of it is retained: it must not be listed")
        return found
    head = state.checkpoint(timeline.head)
    if timeline.head != 0 and head is None:
        found.append(f"I8: {name}: its head, checkpoint {timeline.head}, must be retained")
    starts_at = 0 if timeline.parent is None else timeline.parent[1]
    if timeline.head != starts_at and head is not None and head.timeline != timeline.timeline_id:
        found.append(f"{name}: its head, checkpoint {timeline.head}, must be its own or the one it starts from")
    return found


def lineage_faults(state: ManifestState) -> list[str]:
    """I14: commits are due on the live timeline alone, and none before the sinks have followed its newest switch."""
    found = []
    names = {timeline.timeline_id for timeline in state.timelines}
    found += [
        f"checkpoint {checkpoint.checkpoint_id}: its timeline, {checkpoint.timeline}, must be listed"
        for checkpoint in state.checkpoints
        if checkpoint.timeline not in names
    ]
    live = next((timeline for timeline in state.timelines if timeline.timeline_id == state.live), None)
    pending = None if live is None else live.pending
    if state.status is JobStatus.FAILED and pending is not None:
        found.append(f"I4: the job is FAILED, and checkpoint {pending.checkpoint_id} is pending on its live timeline")
    due = state.reconciliation
    if due is None:
        return found
    where = f"I14: the switch of version {due.decision}"
    if due.timeline != state.live or not 0 < due.decision <= state.version:
        found.append(f"{where} to timeline {due.timeline} must be the newest one: {state.live} is live")
    if due.checkpoint_id != 0 and state.checkpoint(due.checkpoint_id) is None:
        found.append(f"{where}: checkpoint {due.checkpoint_id}, which sinks have yet to follow to, must be retained")
    if not due.sinks or list(due.sinks) != sorted(set(due.sinks)):
        found.append(f"{where}: sinks {due.sinks} must be some, each once, in order")
    if pending is not None or (live is not None and live.head != due.checkpoint_id):
        found.append(f"{where}: nothing may be triggered or completed before all sinks have followed")
    waiting = [int(one.checkpoint_id) for one in state.unconfirmed() if set(one.unconfirmed) & set(due.sinks)]
    if waiting:
        found.append(f"{where} replaces the commits of checkpoints {waiting}: none of them may be due")
    return found
