"""Invariants hold for every manifest value; one that breaks them was not written by this protocol."""

from __future__ import annotations

import re

from milepost.protocol.manifest.timelines.timeline_faults import lineage_faults, timeline_faults
from milepost.protocol.manifest.upkeep.compaction import horizon
from milepost.protocol.records.ids import KEY_HASH_SECRET_PATTERN
from milepost.protocol.records.layout import (
    checkpoint_of_key,
    is_job_directory,
    metadata_key,
    savepoint_root_of_key,
    token_prefix,
)
from milepost.protocol.records.manifest_state import ENDED_STATUSES, CleanUp, ManifestState, TimelineRole
from milepost.protocol.retention.retention import root_in_job

_SHA256 = re.compile(r"[0-9a-f]{64}")


def faults(state: ManifestState) -> list[str]:
    """Return, for people, every invariant that a state breaks; empty for a sound one."""
    found = [fault for timeline in state.timelines for fault in timeline_faults(state, timeline)]
    names = [timeline.timeline_id for timeline in state.timelines]
    if len(set(names)) != len(names) or state.live not in names:
        found.append(f"timelines {names} must differ and contain the live one, {state.live}")
    ids = [checkpoint.checkpoint_id for checkpoint in state.checkpoints]
    if ids != sorted(set(ids)):
        found.append(f"I5: checkpoint ids {ids} must rise strictly")
    if ids and not 0 < ids[0] <= ids[-1] < state.next_checkpoint_id:
        found.append(f"I5: checkpoint ids {ids} must lie between 1 and the next one, {state.next_checkpoint_id}")
    found += [
        f"checkpoint {checkpoint.checkpoint_id}: unconfirmed {checkpoint.unconfirmed} must be sinks of it,"
        f" {checkpoint.sinks}"
        for checkpoint in state.checkpoints
        if not set(checkpoint.unconfirmed) <= set(checkpoint.sinks)
    ]
    found += [
        f"I14: checkpoint {checkpoint.checkpoint_id} was completed by version {checkpoint.version} of {state.version}"
        for checkpoint in state.checkpoints
        if not 0 < checkpoint.version <= state.version
    ]
    if KEY_HASH_SECRET_PATTERN.fullmatch(state.key_hash_secret) is None:
        found.append("the key hash secret must be 32 hexadecimal digits")  # and is not shown
    if not 0 <= state.compacted < horizon(state):
        found.append(
            f"I6: the log is compacted up to {state.compacted}, whole must be what follows {horizon(state) - 1}"
        )
    return found + lineage_faults(state) + _garbage_faults(state) + _result_faults(state) + _held_faults(state)


def _result_faults(state: ManifestState) -> list[str]:
    """I4: an incarnation has a result if and only if it has ended, and then nothing of it runs."""
    found = []
    incarnations = [result.incarnation for result in state.results]
    if incarnations != sorted(set(incarnations)) or any(not 0 < one <= state.incarnation for one in incarnations):
        found.append(f"I4: results of incarnations {incarnations} must rise strictly, up to {state.incarnation}")
    if any(result.status not in ENDED_STATUSES for result in state.results):
        found.append("I4: a result must be FINISHED or CANCELED")
    if any(result.clean_up is CleanUp.DIRTY for result in state.results[:-1]):
        found.append("I4: only the newest result may be dirty")
    newest = state.results[-1] if state.results else None
    status = newest.status if newest is not None and newest.incarnation == state.incarnation else None
    if (state.status in ENDED_STATUSES or status is not None) and status is not state.status:
        found.append(f"I4: incarnation {state.incarnation} is {state.status.name}, its result says {status}")
    if status is None and newest is not None and newest.clean_up is CleanUp.DIRTY:
        found.append(f"I4: the result of incarnation {newest.incarnation} must be clean before the next one starts")
    running = [one for one in state.timelines if one.role is not TimelineRole.FORK]  # a fork may be installed from
    if state.status in ENDED_STATUSES and any(one.pending is not None or one.leader is not None for one in running):
        found.append("I4: a job that has ended must have neither a leader nor a pending checkpoint")
    return found


def _held_faults(state: ManifestState) -> list[str]:
    """I8: what is pinned, or copied by a savepoint, is retained."""
    found = [
        f"I8: checkpoint {pin.checkpoint_id} is pinned by {pin.name} and must be retained"
        for pin in state.pins
        if state.checkpoint(pin.checkpoint_id) is None
    ]
    names = [pin.name for pin in state.pins]
    if names != sorted(set(names)):
        found.append(f"pins {names} must be listed once, by name")
    found += [
        f"I8: checkpoint {savepoint.checkpoint_id} of savepoint {savepoint.name} must be retained"
        for savepoint in state.savepoints
        if state.checkpoint(savepoint.checkpoint_id) is None
    ]
    names = [savepoint.name for savepoint in state.savepoints]
    if names != sorted(set(names)):
        found.append(f"savepoints {names} must be listed once, by name")
    return found


def _garbage_faults(state: ManifestState) -> list[str]:
    """I8: no entry covers what a retained or a pending checkpoint needs."""
    live = [metadata_key(checkpoint.checkpoint_id, checkpoint.token) for checkpoint in state.checkpoints]
    live += [checkpoint.metadata.key for checkpoint in state.checkpoints]
    live += [root for root in map(root_in_job, state.savepoints) if root is not None]
    live += [
        token_prefix(timeline.pending.checkpoint_id, timeline.pending.token)
        for timeline in state.timelines
        if timeline.pending is not None
    ]
    found = [
        f"I8: garbage {entry.prefix} covers {key}, which is live"
        for entry in state.garbage
        for key in live
        if key.startswith(entry.prefix)
    ]
    found += [
        f"I8: garbage {entry.prefix} must lie below a checkpoint, or be a savepoint's root"
        for entry in state.garbage
        if checkpoint_of_key(entry.prefix) is None and savepoint_root_of_key(entry.prefix) != entry.prefix
    ]
    found += [
        f"I8: garbage {entry.prefix} must be an object, or the directory of a checkpoint, token, metrics or a savepoint"
        for entry in state.garbage
        if entry.prefix.endswith("/") and not is_job_directory(entry.prefix)
    ]
    listed = [entry.prefix for entry in state.garbage]
    if len(set(listed)) != len(listed):
        found.append("I8: each garbage entry must be listed once")
    lists = [one.sha256 for one in state.garbage_lists]
    if len(set(lists)) != len(lists):
        found.append("I8: each list of garbage must be named once")
    found += [
        f"I8: list of garbage {one.sha256} must have keys left, below checkpoints, and be named by a version up to this"
        for one in state.garbage_lists
        if not (0 <= one.done < one.count and 0 < one.newest < state.next_checkpoint_id)
        or not 0 < one.since_version <= state.version
        or _SHA256.fullmatch(one.sha256) is None
    ]
    return found
