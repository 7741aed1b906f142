"""Retention policy: what is retained, what is garbage, and when garbage may be deleted (I8).

Deletion follows reachability, in two phases. A transition moves keys to the garbage list. Then, after a grace period
longer than any timeout, a later leader deletes what its fresh head still lists. What is unknown is retained.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from milepost.errors import InvalidRequest
from milepost.protocol.records.checkpoints import CompletedCheckpoint, ObjectHandle
from milepost.protocol.records.ids import CheckpointId, FencingToken, SessionId
from milepost.protocol.records.layout import (
    METRICS_NAME,
    SAVEPOINTS_PREFIX,
    garbage_checkpoint,
    landed_directory,
    landed_object_place,
    landed_place,
    savepoint_root_of_key,
    token_prefix_of_key,
)
from milepost.protocol.records.manifest_state import Garbage, GarbageList, ManifestState, Savepoint, TimelineRole
from milepost.protocol.retention.ancestry import abandoned_lines, open_forks, timeline_ancestry, with_published

MAX_UNCONFIRMED = 3
"""With more completed checkpoints than this waiting for a sink, no new epoch is triggered."""

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_GRACE_MARGIN_MS = _HOUR_MS


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How many checkpoints are retained. The rules are independent: a checkpoint that any rule selects is retained.

    Attributes:
        last: the newest N, at least 1. Savepoints do not count towards it.
        hourly: the newest of each hour (UTC, by trigger time), for the newest N hours that have one; 0 for none.
        daily: the same for days.
    """

    last: int
    hourly: int = 0
    daily: int = 0

    def __post_init__(self) -> None:
        if self.last < 1:
            raise InvalidRequest(
                f"retained: {{last: {self.last}}} refused: expected at least 1. The newest checkpoint is always kept."
            )
        if self.hourly < 0 or self.daily < 0:
            raise InvalidRequest(
                f"retained: {{hourly: {self.hourly}, daily: {self.daily}}} refused: expected at least 0 of each."
            )


def select_checkpoints(
    checkpoints: Collection[CompletedCheckpoint], policy: RetentionPolicy
) -> frozenset[CheckpointId]:
    """Return the checkpoints that the policy retains, given in any order.

    With ``last: 2, hourly: 2`` and checkpoints 1 (08:10), 2 (08:50), 3 (09:05), 4 (09:20), 5 (09:40), `last` selects
    4 and 5, and `hourly` the newest of 08:00 and of 09:00, which are 2 and 5. So {2, 4, 5} are retained.
    """
    ordered = sorted(checkpoints, key=lambda checkpoint: checkpoint.checkpoint_id)
    retained = {checkpoint.checkpoint_id for checkpoint in ordered[-policy.last :]}
    for count, length_ms in ((policy.hourly, _HOUR_MS), (policy.daily, _DAY_MS)):
        newest = {checkpoint.trigger_time_ms // length_ms: checkpoint.checkpoint_id for checkpoint in ordered}
        retained.update(newest[interval] for interval in sorted(newest, reverse=True)[:count])
    return frozenset(retained)


def plan_retention(
    checkpoints: Collection[CompletedCheckpoint], roots: Collection[CheckpointId]
) -> tuple[CheckpointId, ...]:
    """Return the checkpoints that may be dropped, ascending.

    Retained are the roots, checkpoints that a sink has not confirmed, and what its table shows until then.

    Args:
        checkpoints: the retained ones, in any order.
        roots: ids that must stay, because of the policy or regardless of it.
    """
    ordered = sorted(checkpoints, key=lambda checkpoint: checkpoint.checkpoint_id)
    needed = set(roots)
    needed.update(checkpoint.checkpoint_id for checkpoint in ordered if checkpoint.unconfirmed)
    needed = set(with_published(ordered, needed))
    return tuple(checkpoint.checkpoint_id for checkpoint in ordered if checkpoint.checkpoint_id not in needed)


def retention_roots(state: ManifestState) -> frozenset[CheckpointId]:
    """Return the checkpoints that must stay regardless of the policy.

    These are the head of the live timeline; the base of each pending checkpoint; the branch point of each open fork,
    which determines what the fork has to replay, and everything completed on it; checkpoints with a pin or a
    savepoint; and everything newer than a pending checkpoint.
    """
    working = [timeline for timeline in state.timelines if timeline.role is not TimelineRole.ABANDONED]
    roots = {state.timeline().head}
    roots.update(timeline.pending.base for timeline in working if timeline.pending is not None)
    roots.update(fork.parent[1] for fork in open_forks(state) if fork.parent is not None)
    forks = {timeline.timeline_id for timeline in open_forks(state)}
    lowest = lowest_pending(state)
    roots.update(
        checkpoint.checkpoint_id
        for checkpoint in state.checkpoints
        if checkpoint.timeline in forks or (lowest is not None and checkpoint.checkpoint_id >= lowest)
    )
    roots.update(pin.checkpoint_id for pin in state.pins)
    roots.update(savepoint.checkpoint_id for savepoint in state.savepoints)
    return frozenset(roots)


def subsumable(state: ManifestState, policy: RetentionPolicy) -> tuple[CheckpointId, ...]:
    """Return the checkpoints that may be subsumed now, ascending.

    The policy selects from the live timeline's ancestry, and from each abandoned line, which continues with the epochs
    completed live since. So a rollback or a backfill can be undone for as long as its target would have been retained
    without it. While a sink has to follow a decision nothing is subsumed: its table may show any of the checkpoints,
    and moves on from there by the difference.
    """
    if state.reconciliation is not None:
        return ()
    lines = (timeline_ancestry(state, state.timeline()), *abandoned_lines(state))
    by_policy = (select_checkpoints(line, policy) for line in lines)
    return plan_retention(state.checkpoints, retention_roots(state).union(*by_policy))


def unreferenced(retained: Iterable[Iterable[str]], dropped: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return what only dropped checkpoints refer to, sorted: keys, and whole directories with nothing retained in them.

    Checkpoints share state runs by reference. A token's directory is a single entry if nothing in it is retained, so
    that the manifest stays small. Otherwise its files are separate entries, except for its metrics, which are one. A
    savepoint's root is garbage as a whole or not at all, and so are the objects of a landed record. Other keys (input
    records) are never garbage. With checkpoint 2 retained and 1 dropped::

        retained  {chk-2/t2/b, chk-1/t1/a}         2 refers to its own file and to one of 1
        dropped   {chk-1/t1/a, chk-1/t1/_metadata, chk-1/t1/metrics/m, inputs/x.json}
        garbage   chk-1/t1/_metadata, chk-1/t1/metrics/

    Args:
        retained: for each checkpoint that stays, all keys it refers to.
        dropped: for each checkpoint that goes, all keys it refers to or owns, including its metadata.
    """
    referenced = {key for keys in retained for key in keys}
    needed = {token_prefix_of_key(key) or savepoint_root_of_key(key) for key in referenced}
    garbage: set[str] = set()
    for key in {key for keys in dropped for key in keys} - referenced:
        directory = token_prefix_of_key(key)
        if directory is None:
            root = savepoint_root_of_key(key)
            if root is not None and root not in needed:
                garbage.add(root)
            landed = landed_object_place(key)
            if landed is not None or landed_place(key) is not None:
                garbage.add(key if landed is None else landed_directory(*landed))
            continue
        metrics = directory + METRICS_NAME
        if directory not in needed:
            garbage.add(directory)
        elif key.startswith(metrics):
            garbage.add(metrics)
        else:
            garbage.add(key)
    return tuple(sorted(garbage))


def root_in_job(savepoint: Savepoint) -> str | None:
    """Return the ``savepoints/<name>/<creation>/`` of a savepoint below the job; None for one stored elsewhere."""
    if savepoint.location is not None:
        return None
    return savepoint_root_of_key(f"{SAVEPOINTS_PREFIX}{savepoint.name}/{savepoint.document.key}")


def handle_conflicts(references: Iterable[tuple[str, ObjectHandle]]) -> tuple[str, ...]:
    """Return the keys that two references describe differently (size or SHA-256), one line of text for each.

    One key is one immutable object, however many checkpoints share it. With two contents under one key, one of the
    checkpoints would be unreadable, and it would be unknown which.

    Args:
        references: pairs of the referrer's name, for people, and the handle.
    Source: Flink SharedStateRegistry: a different handle under an existing key is illegal.
    """
    first_references: dict[str, tuple[str, ObjectHandle]] = {}
    conflicts: dict[str, str] = {}
    for owner, handle in references:
        first_owner, first_handle = first_references.setdefault(handle.key, (owner, handle))
        if (first_handle.size, first_handle.sha256) != (handle.size, handle.sha256):
            conflicts.setdefault(
                handle.key,
                f"{handle.key}: {first_owner} says {first_handle.size} bytes, SHA-256 {first_handle.sha256[:12]}…;"
                f" {owner} says {handle.size} bytes, SHA-256 {handle.sha256[:12]}…",
            )
    return tuple(conflicts[key] for key in sorted(conflicts))


def is_discarded(state: ManifestState, checkpoint_id: CheckpointId, token: FencingToken) -> bool:
    """Return whether nothing that this token staged will ever be published. False also means unknown.

    Known cases are aborted checkpoints (the newest ones, as remembered in the state) and losing tokens of retained
    checkpoints.
    """
    completed = state.checkpoint(checkpoint_id)
    if completed is not None:
        return completed.token != token
    return any(aborted == checkpoint_id for _, aborted in state.aborted_sessions)


def lowest_pending(state: ManifestState) -> CheckpointId | None:
    """Return the smallest pending checkpoint id of all timelines: everything from ``chk-<id>/`` on is live."""
    return min(
        (timeline.pending.checkpoint_id for timeline in state.timelines if timeline.pending is not None), default=None
    )


def veto_retention_ms(daily: int) -> int:
    """Return how long the failing rows of a vetoed epoch are retained: `retained.daily` days, at least one."""
    return max(1, daily) * _DAY_MS


def minimum_grace_ms(timeout_ms: int) -> int:
    """Return a grace period longer than any timeout of a job with this `checkpointing.timeout`."""
    return 2 * timeout_ms + _GRACE_MARGIN_MS


def deletable(state: ManifestState, session_id: SessionId, now_ms: int, grace_ms: int) -> tuple[Garbage, ...]:
    """Return the garbage that this session may delete from the store now.

    An entry qualifies if the session leads with a token granted after the entry was listed, the grace period is over,
    and the entry is not below a checkpoint that is pending or newer than a pending one.

    Args:
        state: a freshly read head.
        session_id: the session that deletes; it must be the leader of the live timeline.
        now_ms: by the store's clock. grace_ms: see `minimum_grace_ms`.
    """
    leader = state.timeline().leader
    if leader is None or leader.session_id != session_id:
        return ()
    lowest = lowest_pending(state)
    ready = []
    for entry in state.garbage:
        if not _below_finished(entry, lowest):
            continue
        if entry.since_version < leader.token and now_ms - entry.since_ms >= grace_ms:
            ready.append(entry)
    return tuple(ready)


def deletable_lists(state: ManifestState, session_id: SessionId, now_ms: int, grace_ms: int) -> tuple[GarbageList, ...]:
    """Return the lists whose keys this session may delete from the store now; see `deletable`."""
    leader = state.timeline().leader
    if leader is None or leader.session_id != session_id:
        return ()
    return tuple(due for due in _finished_lists(state, now_ms, grace_ms) if due.since_version < leader.token)


def collectable_lists(state: ManifestState, now_ms: int, grace_ms: int) -> tuple[GarbageList, ...]:
    """Return the lists whose keys a session that does not lead may delete from the store now; see `collectable`."""
    triggered = [timeline.pending.prefixes[0] for timeline in state.timelines if timeline.pending is not None]
    return tuple(
        due for due in _finished_lists(state, now_ms, grace_ms) if all(token > due.since_version for token in triggered)
    )


def _finished_lists(state: ManifestState, now_ms: int, grace_ms: int) -> Iterator[GarbageList]:
    """Yield the lists past their grace period whose keys are all below checkpoints older than any pending one."""
    lowest = lowest_pending(state)
    for garbage in state.garbage_lists:
        if now_ms - garbage.since_ms >= grace_ms and (lowest is None or garbage.newest < lowest):
            yield garbage


def _below_finished(entry: Garbage, lowest: CheckpointId | None) -> bool:
    """Return whether an entry is below a checkpoint older than the lowest pending one, a savepoint's or a record's."""
    checkpoint_id = garbage_checkpoint(entry.prefix)
    if checkpoint_id is None:
        return savepoint_root_of_key(entry.prefix) is not None
    return lowest is None or checkpoint_id < lowest


def collectable(state: ManifestState, now_ms: int, grace_ms: int) -> tuple[Garbage, ...]:
    """Return the garbage that a session that does not lead may delete from the store now.

    An entry qualifies if the grace period is over, every pending checkpoint was triggered after the entry was listed,
    and the entry is not below a checkpoint that is pending or newer than a pending one. So every session that could
    have seen it before it was listed has ended or is fenced, even in a job that never gets another leader.

    Args:
        state: a freshly read head. now_ms: by the store's clock. grace_ms: see `minimum_grace_ms`.
    """
    lowest = lowest_pending(state)
    triggered = [timeline.pending.prefixes[0] for timeline in state.timelines if timeline.pending is not None]
    ready = []
    for entry in state.garbage:
        if not _below_finished(entry, lowest):
            continue
        if now_ms - entry.since_ms >= grace_ms and all(token > entry.since_version for token in triggered):
            ready.append(entry)
    return tuple(ready)
