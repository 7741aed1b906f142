"""The end of one checkpoint, found in the manifest log without walking it (I6).

Ids rise strictly with versions (I5): the trigger of a checkpoint made the first version whose next id is above it,
which a binary search finds; from there its epoch's few entries are read, up to the one that ended it.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from functools import partial

from milepost.errors import CheckpointError
from milepost.protocol.log.log_entries import LoggedEvent, Tombstone, aborted_by, completion_of
from milepost.protocol.manifest.transaction.events import Event, TimelineSwitched, confirmation_of
from milepost.protocol.manifest.transaction.transitions import checkpoints_of
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.ids import CheckpointId
from milepost.storage.concurrency.parallel_map import MAX_PARALLEL_REQUESTS, parallel_map
from milepost.storage.log.manifest_log import ManifestLog

_PARENTS = 16
"""Checkpoints that a lineage is followed through: each costs a search of the log."""

_SOON = 64
"""Entries after a completion among which its sinks are looked for: what is confirmed later is told as unpublished."""

_NEXT = 2
"""Of them, those in which most checkpoints are confirmed; the others are read side by side, where need be."""


def version_of_trigger(
    log: ManifestLog, newest: int, checkpoint_id: CheckpointId, retained: Sequence[CompletedCheckpoint] = ()
) -> int:
    """Return the first version up to `newest` whose next checkpoint id is above this one.

    Args:
        newest: a version of the log whose next id is above it.
        retained: by id, ascending; it is looked for first behind the one before it, where mostly it is.
    Raises: StateCorrupt, StoreUnavailable.
    """
    at = bisect(retained, checkpoint_id, key=lambda one: one.checkpoint_id)
    low, high = 1, newest if at == len(retained) else min(newest, retained[at].version)
    middle = min(retained[at - 1].version, high - 1) if at else (low + high) // 2
    while low < high:
        if log.entry(middle).next_checkpoint_id > checkpoint_id:
            high = middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    return low


def ending_entry(
    log: ManifestLog, newest: int, checkpoint_id: CheckpointId, retained: Sequence[CompletedCheckpoint] = ()
) -> LoggedEvent | Tombstone | None:
    """Return the entry that completed or aborted a checkpoint; None: nothing was ever triggered under that id.

    Args:
        newest: version of the head. checkpoint_id: below the head's next one, and not pending. retained: by the head.
    """
    begun = version_of_trigger(log, newest, checkpoint_id, retained)
    for version in range(begun, newest + 1):
        entry = log.event(version)
        if version == begun and checkpoint_id not in _concerned(entry):
            return None  # an import took a higher id
        done = completion_of(entry)
        if checkpoint_id in aborted_by(entry) or (done is not None and done.checkpoint_id == checkpoint_id):
            return entry
    return None


def confirmations_after(
    log: ManifestLog, wanted: CompletedCheckpoint, newest: int, within: int = _SOON
) -> dict[str, int]:
    """Return when each sink showed a checkpoint, by the job store's clock: of those that did soon after its completion.

    Args:
        newest: version of the head. within: so many entries are looked at.
    """
    shown: dict[str, int] = {}
    first, newest = wanted.version + 1, min(newest, wanted.version + within)
    side_by_side = _NEXT
    while first <= newest and not shown.keys() >= set(wanted.sinks):
        versions = range(first, min(newest + 1, first + side_by_side))
        for entry in parallel_map(log.store, partial(_event, log), versions):
            if shown.keys() >= set(wanted.sinks):
                break
            if isinstance(entry, CheckpointError):
                raise entry
            if isinstance(entry, LoggedEvent):
                shown |= _shown_by(entry.event, wanted.checkpoint_id)
        first, side_by_side = versions.stop, MAX_PARALLEL_REQUESTS
    return shown


def _event(log: ManifestLog, version: int) -> LoggedEvent | Tombstone | CheckpointError:
    """Return what happened, or why that cannot be read: it may not be asked for."""
    try:
        return log.event(version)
    except CheckpointError as error:
        return error


def _shown_by(event: Event, wanted: CheckpointId) -> dict[str, int]:
    """Return the sinks that an event says show a checkpoint, with its time."""
    confirmed = confirmation_of(event)
    if confirmed is not None and confirmed.checkpoint_id == wanted:
        return dict.fromkeys(confirmed.sinks, confirmed.at_ms)
    if isinstance(event, TimelineSwitched) and event.to == wanted:
        return dict.fromkeys(event.sinks, event.at_ms)
    return {}


def descends_from(log: ManifestLog, newest: int, descendant: CheckpointId, checkpoint_id: CheckpointId) -> bool | None:
    """Return whether a completed checkpoint is, or continues, an older one, from parent to parent.

    Returns: None: not known after `_PARENTS` of them.
    """
    for _ in range(_PARENTS):
        if descendant <= checkpoint_id:
            return descendant == checkpoint_id
        entry = ending_entry(log, newest, descendant)
        done = completion_of(entry) if entry is not None else None
        if done is None:
            return None
        descendant = done.parent
    return None


def _concerned(entry: LoggedEvent | Tombstone) -> tuple[CheckpointId, ...]:
    return entry.checkpoint_ids if isinstance(entry, Tombstone) else checkpoints_of(entry.event)
