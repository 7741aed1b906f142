"""Invariants of a manifest value's timelines and of an unfinished switch."""

from __future__ import annotations

from milepost.protocol.records.manifest_state import JobStatus, ManifestState, Timeline, TimelineRole


def timeline_faults(state: ManifestState, timeline: Timeline) -> list[str]:
    """Return the invariants that one timeline breaks."""
    faults = _role_faults(state, timeline)
    name = f"timeline {timeline.timeline_id}"
    if timeline.leader is not None and timeline.leader.token > state.version:
        faults.append(f"I3: {name}: token {timeline.leader.token} must not be above version {state.version}")
    pending = timeline.pending
    if pending is None:
        return faults
    if timeline.leader is None or timeline.leader.token != pending.token:
        faults.append(f"I3: {name}: the leader must hold the pending checkpoint's token, {pending.token}")
    if not timeline.head < pending.checkpoint_id < state.next_checkpoint_id:
        faults.append(f"I5: {name}: pending {pending.checkpoint_id} must be between its head and the next id")
    if pending.base != timeline.head:
        faults.append(f"{name}: pending {pending.checkpoint_id} must continue the head, {timeline.head}")
    if not pending.prefixes or list(pending.prefixes) != sorted(set(pending.prefixes)):
        faults.append(f"I3: {name}: tokens {pending.prefixes} must rise strictly")
    elif pending.prefixes[-1] != pending.token:
        faults.append(f"I3: {name}: the newest of tokens {pending.prefixes} must be in force, not {pending.token}")
    return faults


def _role_faults(state: ManifestState, timeline: Timeline) -> list[str]:
    """Check that a timeline is live, a fork or history, and that its head is retained unless it is history."""
    faults = []
    name = f"timeline {timeline.timeline_id}"
    if (timeline.role is TimelineRole.LIVE) != (timeline.timeline_id == state.live):
        faults.append(f"{name}: it is {timeline.role.value}, and the live one is {state.live}")
    if timeline.frozen is not None and timeline.role is not TimelineRole.LIVE:
        faults.append(f"{name}: it is {timeline.role.value}, and only the live one may be frozen")
    if timeline.role is not TimelineRole.ABANDONED and (timeline.live_from is None) != (
        timeline.role is TimelineRole.FORK
    ):
        faults.append(f"{name}: it is {timeline.role.value}, but says it is live from {timeline.live_from}")
    if timeline.role is TimelineRole.ABANDONED:
        if timeline.leader is not None or timeline.pending is not None:
            faults.append(f"I3: {name}: it is abandoned and must have neither a leader nor a pending checkpoint")
        if all(checkpoint.timeline != timeline.timeline_id for checkpoint in state.checkpoints):
            faults.append(f"{name}: it is abandoned and nothing of it is retained: it must not be listed")
        return faults
    head = state.checkpoint(timeline.head)
    if timeline.head != 0 and head is None:
        faults.append(f"I8: {name}: its head, checkpoint {timeline.head}, must be retained")
    starts_at = 0 if timeline.parent is None else timeline.parent[1]
    if timeline.head != starts_at and head is not None and head.timeline != timeline.timeline_id:
        faults.append(f"{name}: its head, checkpoint {timeline.head}, must be its own or the one it starts from")
    return faults


def switch_faults(state: ManifestState) -> list[str]:
    """I14: commits are due only on the live timeline, and none before the sinks have followed its newest switch."""
    faults = []
    names = {timeline.timeline_id for timeline in state.timelines}
    faults += [
        f"checkpoint {checkpoint.checkpoint_id}: its timeline, {checkpoint.timeline}, must be listed"
        for checkpoint in state.checkpoints
        if checkpoint.timeline not in names
    ]
    live = next((timeline for timeline in state.timelines if timeline.timeline_id == state.live), None)
    pending = None if live is None else live.pending
    if state.status is JobStatus.FAILED and pending is not None:
        faults.append(f"I4: the job is FAILED, and checkpoint {pending.checkpoint_id} is pending on its live timeline")
    switch = state.reconciliation
    if switch is None:
        return faults
    subject = f"I14: the switch of version {switch.decision}"
    if switch.timeline != state.live or not 0 < switch.decision <= state.version:
        faults.append(f"{subject} to timeline {switch.timeline} must be the newest one: {state.live} is live")
    if switch.checkpoint_id != 0 and state.checkpoint(switch.checkpoint_id) is None:
        faults.append(f"{subject}: checkpoint {switch.checkpoint_id}, its target, must be retained")
    if not switch.sinks or list(switch.sinks) != sorted(set(switch.sinks)):
        faults.append(f"{subject}: sinks {switch.sinks} must be some, each once, in order")
    if list(switch.realigned) != sorted(set(switch.realigned) & set(switch.sinks)):
        faults.append(f"{subject}: realigned {switch.realigned} must be some of its sinks, each once, in order")
    if pending is not None or (live is not None and live.head != switch.checkpoint_id):
        faults.append(f"{subject}: nothing may be triggered or completed before all sinks have followed")
    waiting = [int(late.checkpoint_id) for late in state.unconfirmed() if set(late.unconfirmed) & set(switch.sinks)]
    if waiting:
        faults.append(f"{subject} replaces the commits of checkpoints {waiting}: none of them may be due")
    return faults
