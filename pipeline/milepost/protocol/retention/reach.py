"""Every stored object has one status: needed, in use, waiting to be deleted, or reached by nothing (I8).

The facts are one manifest value and the keys that a complete walk of every root found. They only prove something when
the objects were listed *before* the manifest was read: then whatever was listed is by now referenced, in use, listed as
garbage, or will never be any of these again.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from milepost.protocol.records.errors import InvalidRequest
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.layout import (
    GARBAGE_PREFIX,
    MANIFEST_PREFIX,
    METRICS_NAME,
    PROBE_PREFIX,
    SAVEPOINTS_PREFIX,
    checkpoint_of_key,
    checkpoint_prefix,
    copy_pin_name,
    garbage_list_key,
    heartbeat_key,
    is_mark_key,
    is_registered_table_key,
    is_veto_key,
    manifest_version,
    savepoint_root_of_key,
    token_of_prefix,
    token_prefix,
    token_prefix_of_key,
)
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.retention import lowest_pending

_INPUT_KEY = re.compile(r"inputs/[0-9a-f]{64}\.json")


class ObjectStatus(Enum):
    """Why an object stays, or that nothing keeps it."""

    LOG = "entry of the manifest log, or of a sink's chain of heads: a key of either is never freed"
    REFERENCED = "referenced by a root"
    IN_USE = "below a checkpoint that is pending, or newer than a pending one; or of a savepoint that is being copied"
    OWNED = "measurements of a retained checkpoint: they go with it"
    LISTED = "listed as garbage: deleted once it is due"
    UNCLAIMED = "input record of no completed epoch: a trigger may still name it, so it is kept"
    UNREACHABLE = "nothing refers to it, and nothing can any more"
    KEPT = "of a table of which it is not known now what retained checkpoints need, or about to be published: it stays"
    EXPIRED = "failing rows of a vetoed epoch, older than they are kept for: nothing refers to them any more"
    PROBE = "left by a start-up probe that was killed: nothing ever refers to it"
    REPLACED_LIST = "list of garbage that no version names any more, or one that is about to be named"
    FOREIGN = "not part of the job's layout: not ours to delete"


@dataclass(frozen=True, slots=True)
class CheckpointOutcome:
    """How one checkpoint ended, as the manifest log tells.

    Attributes:
        version: of the entry that says so.
        winner: the token that completed it; None when it was aborted.
    """

    version: int
    winner: FencingToken | None


@dataclass(frozen=True, slots=True)
class Listed:
    """All that one manifest value lists as garbage, its lists included.

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
        return key in self.keys or any(one in self.keys for one in directories)


def object_status(state: ManifestState, key: str, references: Collection[str], listed: Listed) -> ObjectStatus:
    """Return where an object of the job's own store stands.

    Args:
        state: read after the object was listed.
        references: every key that some root of `state`, or an entry of its log, refers to; a veto that is young enough.
        listed: by that state.
    """
    if key.startswith(MANIFEST_PREFIX):
        return ObjectStatus.LOG if _is_log_entry(key) else ObjectStatus.FOREIGN
    if key in references:
        return ObjectStatus.REFERENCED
    if is_mark_key(key) or is_registered_table_key(key):
        return ObjectStatus.LOG
    if key.startswith(PROBE_PREFIX):
        return ObjectStatus.PROBE
    if is_veto_key(key):
        return ObjectStatus.EXPIRED
    if key.startswith(GARBAGE_PREFIX):
        named = any(key == garbage_list_key(one.sha256) for one in state.garbage_lists)
        return ObjectStatus.REFERENCED if named else ObjectStatus.REPLACED_LIST
    if _INPUT_KEY.fullmatch(key):
        return ObjectStatus.UNCLAIMED
    if key.startswith(SAVEPOINTS_PREFIX):
        return _of_a_copy(state, key, listed)
    prefix = token_prefix_of_key(key)
    owner = None if prefix is None else token_of_prefix(prefix)
    if prefix is None or owner is None or not 0 < owner[0] < state.next_checkpoint_id or owner[1] > state.version:
        return ObjectStatus.FOREIGN
    checkpoint_id, token = owner
    if in_use(state, checkpoint_id):
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
    listed: Listed,
) -> ObjectStatus:
    """Return where a file stands that a token staged at a sink, and that did not win its checkpoint.

    Args:
        outcome: of that checkpoint; None when the log does not tell (yet): then it is kept.
    """
    if not 0 < checkpoint_id < state.next_checkpoint_id or token > state.version:
        return ObjectStatus.FOREIGN
    if in_use(state, checkpoint_id) or outcome is None:
        return ObjectStatus.IN_USE
    if token_prefix(checkpoint_id, token) in listed.keys:
        return ObjectStatus.LISTED
    return ObjectStatus.UNREACHABLE


def published_status(*, free: bool, listed: bool) -> ObjectStatus:
    """Return where a file of a sink's table stands that no root needs, as far as that is known.

    Args:
        free: it is known, and the object may go. listed: a list of the table's garbage names it.
    """
    if not free:
        return ObjectStatus.KEPT
    return ObjectStatus.LISTED if listed else ObjectStatus.UNREACHABLE


def _of_a_copy(state: ManifestState, key: str, listed: Listed) -> ObjectStatus:
    """Return where an object below a savepoint's root stands that no listed savepoint names."""
    root = savepoint_root_of_key(key)
    if root is None:
        return ObjectStatus.FOREIGN
    if any(pin.name == copy_pin_name(root) for pin in state.pins):
        return ObjectStatus.IN_USE
    return ObjectStatus.LISTED if listed.covers(key) else ObjectStatus.UNREACHABLE


def proof(key: str, outcome: CheckpointOutcome | None) -> str:
    """Say in one clause why nothing can need an unreachable object any more."""
    if savepoint_root_of_key(key) is not None:
        return "no savepoint that the job lists names it, and nobody copies there"
    checkpoint_id = checkpoint_of_key(key)
    prefix = token_prefix_of_key(key)
    owner = None if prefix is None else token_of_prefix(prefix)
    return _proof(checkpoint_id, None if owner is None else owner[1], outcome)


def staged_proof(checkpoint_id: CheckpointId, token: FencingToken, outcome: CheckpointOutcome | None) -> str:
    """Say in one clause why nothing can need a file that this token staged at a sink any more."""
    return _proof(checkpoint_id, token, outcome)


def published_proof(checkpoint_id: CheckpointId) -> str:
    """Say in one clause why nothing can need a file of a table any more."""
    return f"staged by checkpoint {checkpoint_id}; neither the table nor its state as of a retained checkpoint needs it"


def in_use(state: ManifestState, checkpoint_id: CheckpointId) -> bool:
    """Return whether everything below ``chk-<id>/`` is live: the id is that of a pending checkpoint, or above one."""
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
