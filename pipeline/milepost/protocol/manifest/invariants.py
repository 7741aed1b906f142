"""Invariants of every manifest value. A value that breaks one was not written by this protocol."""

from __future__ import annotations

import re

from milepost.protocol.manifest.timelines.timeline_faults import switch_faults, timeline_faults
from milepost.protocol.manifest.upkeep.compaction import horizon
from milepost.protocol.records.ids import KEY_HASH_SECRET_PATTERN
from milepost.protocol.records.layout import (
    checkpoint_of_key,
    is_job_directory,
    metadata_key,
    savepoint_root_of_key,
    token_prefix,
)
from milepost.protocol.records.log_positions import is_below_floor
from milepost.protocol.records.manifest_state import ENDED_STATUSES, CleanUp, ManifestState, TimelineRole
from milepost.protocol.retention.retention import root_in_job

_SHA256 = re.compile(r"[0-9a-f]{64}")


def faults(state: ManifestState) -> list[str]:
    """Return the invariants that a state breaks, as text for people; empty for a valid state."""
    violations = [fault for timeline in state.timelines for fault in timeline_faults(state, timeline)]
    names = [timeline.timeline_id for timeline in state.timelines]
    if len(set(names)) != len(names) or state.live not in names:
        violations.append(f"timelines {names} must differ and contain the live one, {state.live}")
    ids = [checkpoint.checkpoint_id for checkpoint in state.checkpoints]
    if ids != sorted(set(ids)):
        violations.append(f"I5: checkpoint ids {ids} must rise strictly")
    if ids and not 0 < ids[0] <= ids[-1] < state.next_checkpoint_id:
        violations.append(f"I5: checkpoint ids {ids} must be between 1 and the next one, {state.next_checkpoint_id}")
    violations += [
        f"checkpoint {checkpoint.checkpoint_id}: unconfirmed {checkpoint.unconfirmed} must be sinks of it,"
        f" {checkpoint.sinks}"
        for checkpoint in state.checkpoints
        if not set(checkpoint.unconfirmed) <= set(checkpoint.sinks)
    ]
    violations += [
        f"I14: checkpoint {checkpoint.checkpoint_id} was completed by version {checkpoint.version} of {state.version}"
        for checkpoint in state.checkpoints
        if not 0 < checkpoint.version <= state.version
    ]
    if KEY_HASH_SECRET_PATTERN.fullmatch(state.key_hash_secret) is None:
        violations.append("the key hash secret must be 32 hexadecimal digits")  # and is not shown
    if not 0 <= state.compacted < horizon(state):
        violations.append(
            f"I6: the log is compacted up to {state.compacted}, but entries after {horizon(state) - 1} must stay whole"
        )
    sources = [floor.source for floor in state.floors]
    if sources != sorted(set(sources)):
        violations.append(f"L5: floors of sources {sources} must be sorted, one per source")
    places = [quarantined.place for quarantined in state.quarantined]
    if places != sorted(set(places)):
        violations.append(f"quarantined objects {places} must be sorted, one version of each")
    return violations + switch_faults(state) + _garbage_faults(state) + _result_faults(state) + _hold_faults(state)


def _result_faults(state: ManifestState) -> list[str]:
    """I4: an incarnation has a result if and only if it has ended; then nothing in it runs."""
    faults = []
    incarnations = [result.incarnation for result in state.results]
    if incarnations != sorted(set(incarnations)) or any(not 0 < number <= state.incarnation for number in incarnations):
        faults.append(f"I4: results of incarnations {incarnations} must rise strictly, up to {state.incarnation}")
    if any(result.status not in ENDED_STATUSES for result in state.results):
        faults.append("I4: a result must be FINISHED or CANCELED")
    if any(result.clean_up is CleanUp.DIRTY for result in state.results[:-1]):
        faults.append("I4: only the newest result may be dirty")
    newest = state.results[-1] if state.results else None
    status = newest.status if newest is not None and newest.incarnation == state.incarnation else None
    if (state.status in ENDED_STATUSES or status is not None) and status is not state.status:
        faults.append(f"I4: incarnation {state.incarnation} is {state.status.name}, its result says {status}")
    if status is None and newest is not None and newest.clean_up is CleanUp.DIRTY:
        faults.append(f"I4: the result of incarnation {newest.incarnation} must be clean before the next one starts")
    # A fork is exempt: a checkpoint may be imported on it after the end.
    timelines = [timeline for timeline in state.timelines if timeline.role is not TimelineRole.FORK]
    has_session = any(timeline.pending is not None or timeline.leader is not None for timeline in timelines)
    if state.status in ENDED_STATUSES and has_session:
        faults.append("I4: a job that has ended must have neither a leader nor a pending checkpoint")
    return faults


def _hold_faults(state: ManifestState) -> list[str]:
    """I8: checkpoints with a pin or a savepoint are retained."""
    faults = [
        f"I8: checkpoint {pin.checkpoint_id} is pinned by {pin.name} and must be retained"
        for pin in state.pins
        if state.checkpoint(pin.checkpoint_id) is None
    ]
    names = [pin.name for pin in state.pins]
    if names != sorted(set(names)):
        faults.append(f"pins {names} must be listed once, by name")
    faults += [
        f"I8: checkpoint {savepoint.checkpoint_id} of savepoint {savepoint.name} must be retained"
        for savepoint in state.savepoints
        if state.checkpoint(savepoint.checkpoint_id) is None
    ]
    names = [savepoint.name for savepoint in state.savepoints]
    if names != sorted(set(names)):
        faults.append(f"savepoints {names} must be listed once, by name")
    return faults


def _garbage_faults(state: ManifestState) -> list[str]:
    """I8: no garbage entry covers an object that a retained or a pending checkpoint needs."""
    live_keys = [metadata_key(checkpoint.checkpoint_id, checkpoint.token) for checkpoint in state.checkpoints]
    live_keys += [checkpoint.metadata.key for checkpoint in state.checkpoints]
    live_keys += [root for root in map(root_in_job, state.savepoints) if root is not None]
    live_keys += [
        token_prefix(timeline.pending.checkpoint_id, timeline.pending.token)
        for timeline in state.timelines
        if timeline.pending is not None
    ]
    faults = [
        f"I8: garbage {entry.prefix} covers {key}, which is live"
        for entry in state.garbage
        for key in live_keys
        if key.startswith(entry.prefix)
    ]
    faults += [
        f"I8: garbage {entry.prefix} must be below a checkpoint, a savepoint's root, or of a record below a floor"
        for entry in state.garbage
        if not is_below_floor(entry.prefix, state.floors)
        and checkpoint_of_key(entry.prefix) is None
        and savepoint_root_of_key(entry.prefix) != entry.prefix
    ]
    faults += [
        f"I8: garbage {entry.prefix} must be an object, or a directory of a checkpoint, token, savepoint or record"
        for entry in state.garbage
        if entry.prefix.endswith("/") and not is_job_directory(entry.prefix)
    ]
    listed = [entry.prefix for entry in state.garbage]
    if len(set(listed)) != len(listed):
        faults.append("I8: each garbage entry must be listed once")
    lists = [garbage.sha256 for garbage in state.garbage_lists]
    if len(set(lists)) != len(lists):
        faults.append("I8: each garbage list must be named once")
    faults += [
        f"I8: garbage list {garbage.sha256} must have remaining keys, below checkpoints, and a version up to this one"
        for garbage in state.garbage_lists
        if not (0 <= garbage.done < garbage.count and 0 <= garbage.newest < state.next_checkpoint_id)
        or not 0 < garbage.since_version <= state.version
        or _SHA256.fullmatch(garbage.sha256) is None
    ]
    return faults
