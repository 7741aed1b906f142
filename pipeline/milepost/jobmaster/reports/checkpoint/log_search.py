"""Find the log entry that ended a checkpoint by binary search, without walking the log (I6).

Checkpoint ids rise strictly with versions (I5), so the first version whose next id is above a checkpoint's id is that
of its trigger. From there, the few entries of its epoch are read up to the one that ended it. Example for checkpoint 2:

    version              1  2          3            4          5            6
    event                   trigger 1  complete 1   trigger 2  abort 2      trigger 3
    next_checkpoint_id   1  2          2            3          3            4

The search finds version 4, the first one with next_checkpoint_id 3. Version 5 ended the checkpoint.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from milepost.errors import CheckpointError
from milepost.protocol.log import LoggedEvent, Tombstone, aborted_by, completion_of
from milepost.protocol.manifest.transaction import Event, TimelineSwitched, checkpoints_of, confirmation_of
from milepost.protocol.records import CheckpointId, CompletedCheckpoint
from milepost.storage.concurrency import MAX_PARALLEL_REQUESTS, parallel_map
from milepost.storage.log import ManifestLog

_PARENTS = 16
"""Maximum number of parents to follow. Each one costs a search of the log."""

_SOON = 64
"""Entries after a completion that are searched for its confirmations. Later ones are reported as unpublished."""

_NEXT = 2
"""Entries to read first: these confirm most checkpoints. The others are read in parallel if needed."""


def version_of_trigger(
    log: ManifestLog, newest: int, checkpoint_id: CheckpointId, retained: Sequence[CompletedCheckpoint] = ()
) -> int:
    """Return the first version up to `newest` whose next checkpoint id is above this one.

    Args:
        newest: a version of the log with a next id above it.
        retained: by id, ascending. The search starts right after the preceding one, where the trigger usually is.
    Raises: StateCorrupt, StoreUnavailable.
    """
    at = bisect(retained, checkpoint_id, key=lambda checkpoint: checkpoint.checkpoint_id)
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
    """Return the entry that completed or aborted a checkpoint; None: no checkpoint was triggered with that id.

    Args:
        newest: version of the head. checkpoint_id: below the head's next id, and not pending. retained: in the head.
    """
    begun = version_of_trigger(log, newest, checkpoint_id, retained)
    for version in range(begun, newest + 1):
        entry = log.event(version)
        if version == begun and checkpoint_id not in _checkpoint_ids(entry):
            return None  # an import skipped this id
        done = completion_of(entry)
        if checkpoint_id in aborted_by(entry) or (done is not None and done.checkpoint_id == checkpoint_id):
            return entry
    return None


@dataclass(frozen=True, slots=True)
class Confirmations:
    """The sinks whose tables showed a checkpoint soon after its completion.

    Attributes:
        sinks: sink -> ms by the job store's clock. duration_ms: as recorded with the last of them.
    """

    sinks: Mapping[str, int]
    duration_ms: int | None


def confirmations_after(
    log: ManifestLog, checkpoint: CompletedCheckpoint, newest: int, within: int = _SOON
) -> Confirmations:
    """Return the confirmations that follow the completion of a checkpoint.

    Args:
        newest: version of the head. within: number of entries to search.
    """
    confirmed, duration_ms = dict[str, int](), None
    first, newest = checkpoint.version + 1, min(newest, checkpoint.version + within)
    batch_size = _NEXT
    while first <= newest and not confirmed.keys() >= set(checkpoint.sinks):
        versions = range(first, min(newest + 1, first + batch_size))
        for entry in parallel_map(log.store, partial(_event, log), versions):
            if confirmed.keys() >= set(checkpoint.sinks):
                break
            if isinstance(entry, CheckpointError):
                raise entry
            if isinstance(entry, LoggedEvent):
                confirmed |= _confirmed_by(entry.event, checkpoint.checkpoint_id)
                confirmation = confirmation_of(entry.event)
                if confirmation is not None and confirmation.checkpoint_id == checkpoint.checkpoint_id:
                    duration_ms = confirmation.duration_ms or duration_ms
        first, batch_size = versions.stop, MAX_PARALLEL_REQUESTS
    return Confirmations(confirmed, duration_ms)


def _event(log: ManifestLog, version: int) -> LoggedEvent | Tombstone | CheckpointError:
    """Return the event, or the error as a value: the caller may not need this entry."""
    try:
        return log.event(version)
    except CheckpointError as error:
        return error


def _confirmed_by(event: Event, checkpoint_id: CheckpointId) -> dict[str, int]:
    """Return the sinks whose tables show a checkpoint according to an event, with the event's time."""
    confirmed = confirmation_of(event)
    if confirmed is not None and confirmed.checkpoint_id == checkpoint_id:
        return dict.fromkeys(confirmed.sinks, confirmed.at_ms)
    if isinstance(event, TimelineSwitched) and event.to == checkpoint_id:
        return dict.fromkeys(event.sinks, event.at_ms)
    return {}


def descends_from(log: ManifestLog, newest: int, descendant: CheckpointId, checkpoint_id: CheckpointId) -> bool | None:
    """Return whether a completed checkpoint is, or descends from, another one, by following parents.

    Returns: None: unknown after `_PARENTS` parents.
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


def _checkpoint_ids(entry: LoggedEvent | Tombstone) -> tuple[CheckpointId, ...]:
    return entry.checkpoint_ids if isinstance(entry, Tombstone) else checkpoints_of(entry.event)
