"""Classify stored objects: needed, in use, waiting for deletion, or unreachable (I8).

The inputs are one manifest value and the keys that a complete walk of every root reached. They prove something only if
the objects were listed *before* the manifest was read: then each listed object is by now referenced, in use or listed
as garbage, or never will be again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from milepost.errors import InvalidRequest
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.layout import (
    GARBAGE_PREFIX,
    LANDED_PREFIX,
    MANIFEST_PREFIX,
    METRICS_NAME,
    PROBE_PREFIX,
    SAVEPOINTS_PREFIX,
    checkpoint_of_key,
    checkpoint_prefix,
    copy_pin_name,
    figures_place,
    garbage_list_key,
    heartbeat_key,
    is_landing_failure_key,
    is_mark_key,
    is_registered_table_key,
    is_veto_key,
    landed_directory,
    landed_object_place,
    landed_place,
    manifest_version,
    savepoint_root_of_key,
    token_of_prefix,
    token_prefix,
    token_prefix_of_key,
)
from milepost.protocol.records.log_positions import is_below_floor
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.retention import lowest_pending

_INPUT_KEY = re.compile(r"inputs/[0-9a-f]{64}\.json")


class ObjectStatus(Enum):
    """Why an object is retained, or that nothing requires it."""

    LOG = "entry of the manifest log, of a sink's chain of heads or of a source's log, whose keys are never freed"
    REFERENCED = "referenced by a root"
    IN_USE = (
        "below a checkpoint that is pending or newer than a pending one, part of a savepoint being copied, or written "
        "by a landing that may be running"
    )
    OWNED = "measurements of a retained checkpoint, deleted together with it, or a source's last failed landing"
    LISTED = "listed as garbage, deleted once it is due"
    UNCLAIMED = "input record of no completed epoch, retained because a trigger may still name it"
    UNREACHABLE = "nothing refers to it, and nothing can refer to it again"
    KEPT = "retained: part of a table whose needs are not known now, or about to be published"
    EXPIRED = "failing rows of a vetoed epoch, past their retention time and no longer referenced"
    FIGURES = "rows of figures of past epochs, stored permanently"
    PROBE = "left by a killed start-up probe; nothing ever refers to it"
    LOST_LANDING = "written by a landing that lost: another one appended the record for which it was written"
    REPLACED_LIST = "garbage list that no version names any longer, or that is about to be named"
    FOREIGN = "not part of the job's layout, so Milepost never deletes it"


@dataclass(frozen=True, slots=True)
class CheckpointOutcome:
    """How one checkpoint ended, according to the manifest log.

    Attributes:
        version: of the entry that records it.
        winner: the token that completed it; None if it was aborted.
    """

    version: int
    winner: FencingToken | None


@dataclass(frozen=True, slots=True)
class GarbageKeys:
    """All garbage of one manifest value, including the contents of its lists.

    Attributes:
        keys: of single objects, and of directories, which end in ``/``.
    """

    keys: frozenset[str]

    def covers(self, key: str) -> bool:
        """Return whether an object is garbage."""
        owner = token_prefix_of_key(key)
        directories = [savepoint_root_of_key(key), owner]
        checkpoint_id = checkpoint_of_key(key)
        directories += [] if checkpoint_id is None else [checkpoint_prefix(checkpoint_id)]
        directories += [owner + METRICS_NAME] if owner is not None and key.startswith(owner + METRICS_NAME) else []
        landed = landed_object_place(key)
        directories += [] if landed is None else [landed_directory(*landed)]
        return key in self.keys or any(directory in self.keys for directory in directories)


def object_status(
    state: ManifestState,
    key: str,
    references: Collection[str],
    listed: GarbageKeys,
    logs: Mapping[str, int] | None = None,
) -> ObjectStatus:
    """Return the status of an object in the job's own store.

    Args:
        state: read after the object was listed.
        references: every key that a root of `state` or an entry of its log refers to, and vetoes within retention.
        listed: garbage of that state.
        logs: sequence of the newest record of each source's log, read after the object was listed. All their objects
            are among the references.
    """
    if key.startswith(MANIFEST_PREFIX):
        return ObjectStatus.LOG if _is_log_entry(key) else ObjectStatus.FOREIGN
    if key in references:
        return ObjectStatus.REFERENCED
    if is_mark_key(key) or is_registered_table_key(key):
        return ObjectStatus.LOG
    if figures_place(key) is not None:
        return ObjectStatus.FIGURES
    if key.startswith(PROBE_PREFIX):
        return ObjectStatus.PROBE
    if is_veto_key(key):
        return ObjectStatus.EXPIRED
    if key.startswith(GARBAGE_PREFIX):
        named = any(key == garbage_list_key(garbage.sha256) for garbage in state.garbage_lists)
        return ObjectStatus.REFERENCED if named else ObjectStatus.REPLACED_LIST
    if key.startswith(LANDED_PREFIX):
        return _of_a_log(state, key, listed, logs or {})
    if _INPUT_KEY.fullmatch(key):
        return ObjectStatus.UNCLAIMED
    if key.startswith(SAVEPOINTS_PREFIX):
        return _of_a_copy(state, key, listed)
    prefix = token_prefix_of_key(key)
    owner = None if prefix is None else token_of_prefix(prefix)
    if prefix is None or owner is None or not 0 < owner[0] < state.next_checkpoint_id or owner[1] > state.version:
        return ObjectStatus.FOREIGN
    checkpoint_id, token = owner
    if is_in_use(state, checkpoint_id):
        return ObjectStatus.IN_USE
    if listed.covers(key):
        return ObjectStatus.LISTED
    retained = state.checkpoint(checkpoint_id)
    if retained is not None and retained.token == token and _is_measurement(checkpoint_id, token, key):
        return ObjectStatus.OWNED
    return ObjectStatus.UNREACHABLE


def staged_status(
    state: ManifestState,
    checkpoint_id: CheckpointId,
    token: FencingToken,
    outcome: CheckpointOutcome | None,
    listed: GarbageKeys,
) -> ObjectStatus:
    """Return the status of a file that a token staged at a sink without completing its checkpoint.

    Args:
        outcome: of that checkpoint; None: not in the log (yet), so the file is retained.
    """
    if not 0 < checkpoint_id < state.next_checkpoint_id or token > state.version:
        return ObjectStatus.FOREIGN
    if is_in_use(state, checkpoint_id) or outcome is None:
        return ObjectStatus.IN_USE
    if token_prefix(checkpoint_id, token) in listed.keys:
        return ObjectStatus.LISTED
    return ObjectStatus.UNREACHABLE


def published_status(*, free: bool, listed: bool) -> ObjectStatus:
    """Return the status of a file of a sink's table that no root is known to need.

    Args:
        free: proved to be unneeded. listed: a list of the table's garbage names it.
    """
    if not free:
        return ObjectStatus.KEPT
    return ObjectStatus.LISTED if listed else ObjectStatus.UNREACHABLE


def _of_a_copy(state: ManifestState, key: str, listed: GarbageKeys) -> ObjectStatus:
    """Return the status of an object below a savepoint's root that no listed savepoint names."""
    root = savepoint_root_of_key(key)
    if root is None:
        return ObjectStatus.FOREIGN
    if any(pin.name == copy_pin_name(root) for pin in state.pins):
        return ObjectStatus.IN_USE
    return ObjectStatus.LISTED if listed.covers(key) else ObjectStatus.UNREACHABLE


def _of_a_log(state: ManifestState, key: str, listed: GarbageKeys, logs: Mapping[str, int]) -> ObjectStatus:
    """Return the status of a record, or of a landed object that no retained record names.

    Such an object can still be named as long as its record's place is free. With record 7 as the newest one: an object
    for record 7 has lost, because record 7 names others; one for record 8 may belong to a landing that is running. With
    the floor at record 4, whatever is stored for records 1 to 3 is unreachable.
    """
    place = landed_object_place(key)
    if is_below_floor(key if place is None else landed_directory(*place), state.floors):
        return ObjectStatus.LISTED if listed.covers(key) else ObjectStatus.UNREACHABLE
    if place is None and is_landing_failure_key(key):
        return ObjectStatus.OWNED
    if place is None:
        return ObjectStatus.FOREIGN if landed_place(key) is None else ObjectStatus.LOG
    source, sequence = place
    return ObjectStatus.LOST_LANDING if sequence <= logs.get(source, 0) else ObjectStatus.IN_USE


def proof(key: str, outcome: CheckpointOutcome | None) -> str:
    """Return, as one clause, why nothing can need an unreachable object again."""
    if savepoint_root_of_key(key) is not None:
        return "no listed savepoint names it, and no copy is in progress there"
    if landed_place(key) is not None or landed_object_place(key) is not None:
        return "its record is below the floor of the source's log, so no retained checkpoint reads it"
    checkpoint_id = checkpoint_of_key(key)
    prefix = token_prefix_of_key(key)
    owner = None if prefix is None else token_of_prefix(prefix)
    return _proof(checkpoint_id, None if owner is None else owner[1], outcome)


def staged_proof(checkpoint_id: CheckpointId, token: FencingToken, outcome: CheckpointOutcome | None) -> str:
    """Return, as one clause, why nothing can need a file again that this token staged at a sink."""
    return _proof(checkpoint_id, token, outcome)


def published_proof(checkpoint_id: CheckpointId) -> str:
    """Return, as one clause, why nothing can need a file of a table again."""
    return f"staged by checkpoint {checkpoint_id}; neither the table nor its state as of a retained checkpoint needs it"


def is_in_use(state: ManifestState, checkpoint_id: CheckpointId) -> bool:
    """Return whether everything below ``chk-<id>/`` is live: the checkpoint is pending, or newer than a pending one."""
    lowest = lowest_pending(state)
    return lowest is not None and checkpoint_id >= lowest


def _proof(checkpoint_id: CheckpointId | None, token: FencingToken | None, outcome: CheckpointOutcome | None) -> str:
    if outcome is None:
        return f"checkpoint {checkpoint_id} is not pending, and no retained checkpoint refers to it"
    if outcome.winner is None:
        return f"checkpoint {checkpoint_id} was aborted in version {outcome.version}"
    version = outcome.version
    if outcome.winner != token:
        return f"token {outcome.winner} completed checkpoint {checkpoint_id} in version {version}, not token {token}"
    return f"checkpoint {checkpoint_id} completed in version {version} without it"


def _is_log_entry(key: str) -> bool:
    try:
        return manifest_version(key) > 0
    except InvalidRequest:
        return False


def _is_measurement(checkpoint_id: CheckpointId, token: FencingToken, key: str) -> bool:
    prefix = token_prefix_of_key(key) or ""
    return key.startswith(prefix + METRICS_NAME) or key == heartbeat_key(checkpoint_id, token)
