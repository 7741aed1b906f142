"""The retention policy says what is kept, what is garbage, and when garbage may be deleted (I8).

Deletion is by reachability, in two phases: a transition moves keys to the garbage list; only a later leader, after a
grace period longer than any timeout, deletes what its fresh head still lists. Unknown means keep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from milepost.protocol.records.checkpoints import CompletedCheckpoint, ObjectHandle
from milepost.protocol.records.errors import InvalidRequest
from milepost.protocol.records.ids import CheckpointId, FencingToken, SessionId
from milepost.protocol.records.layout import (
    METRICS_NAME,
    SAVEPOINTS_PREFIX,
    checkpoint_of_key,
    savepoint_root_of_key,
    token_prefix_of_key,
)
from milepost.protocol.records.manifest_state import Garbage, GarbageList, ManifestState, Savepoint, TimelineRole
from milepost.protocol.retention.lineage import abandoned_lines, lineage, open_forks, with_published

MAX_UNCONFIRMED = 3
"""With more completed checkpoints than this waiting for a sink, no new epoch is triggered."""

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_GRACE_MARGIN_MS = _HOUR_MS


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How many checkpoints stay. Each rule selects by itself; one that any of them selects stays.

    Attributes:
        last: the newest so many, at least 1; savepoints are kept besides and take no place.
        hourly: the newest of each of the newest so many hours (UTC, by trigger time) that have one; 0 for none.
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


def selected(checkpoints: Collection[CompletedCheckpoint], policy: RetentionPolicy) -> frozenset[CheckpointId]:
    """Return the checkpoints, in any order, that the policy keeps of these."""
    own = sorted(checkpoints, key=lambda checkpoint: checkpoint.checkpoint_id)
    kept = {checkpoint.checkpoint_id for checkpoint in own[-policy.last :]}
    for count, length_ms in ((policy.hourly, _HOUR_MS), (policy.daily, _DAY_MS)):
        newest = {checkpoint.trigger_time_ms // length_ms: checkpoint.checkpoint_id for checkpoint in own}
        kept.update(newest[interval] for interval in sorted(newest, reverse=True)[:count])
    return frozenset(kept)


def plan_retention(
    checkpoints: Collection[CompletedCheckpoint], roots: Collection[CheckpointId]
) -> tuple[CheckpointId, ...]:
    """Return the checkpoints that nothing keeps, ascending.

    Kept are: the roots, checkpoints that a sink has not confirmed, and what its table shows meanwhile.

    Args:
        checkpoints: the retained ones, in any order.
        roots: ids that must stay: by the policy, or whatever it says.
    """
    ordered = sorted(checkpoints, key=lambda checkpoint: checkpoint.checkpoint_id)
    kept = set(roots)
    kept.update(checkpoint.checkpoint_id for checkpoint in ordered if checkpoint.unconfirmed)
    kept = set(with_published(ordered, kept))
    return tuple(checkpoint.checkpoint_id for checkpoint in ordered if checkpoint.checkpoint_id not in kept)


def retention_roots(state: ManifestState) -> frozenset[CheckpointId]:
    """Return the checkpoints that must stay whatever the policy says.

    They are: the head of the live timeline, and the base of each pending checkpoint; where an open fork leaves its
    parent, without which nobody could tell what it has to replay, and all that was completed on it; the pinned, and
    those of savepoints; and everything that is newer than a pending checkpoint.
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

    The policy selects of the live lineage, and of each line that a switch has left: what is behind one goes on to be
    counted by the epochs of the live line, so that a rollback or a backfill can be undone for as long as one could have
    gone back without it. While a sink has yet to follow a decision nothing is: its table may show any of them, and goes
    on from there by the difference.
    """
    if state.reconciliation is not None:
        return ()
    lines = (lineage(state, state.timeline()), *abandoned_lines(state))
    return plan_retention(state.checkpoints, retention_roots(state).union(*(selected(one, policy) for one in lines)))


def unreferenced(kept: Iterable[Iterable[str]], dropped: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return what only dropped checkpoints refer to, sorted: keys, and whole directories below which nothing is kept.

    State runs are carried by reference from checkpoint to checkpoint. While a kept one refers to anything of a token's
    directory, that directory's files are garbage one by one, but its metrics together; then the directory is one entry,
    so that the manifest value stays small. Of a savepoint's root all is garbage, as one entry, or nothing is. A key
    outside of all of these, an input record, is never garbage.

    Args:
        kept: for each checkpoint that stays, all keys it refers to.
        dropped: for each checkpoint that goes, all keys it refers to or owns, its metadata included.
    """
    referenced = {key for keys in kept for key in keys}
    needed = {token_prefix_of_key(key) or savepoint_root_of_key(key) for key in referenced}
    garbage: set[str] = set()
    for key in {key for keys in dropped for key in keys} - referenced:
        directory = token_prefix_of_key(key)
        if directory is None:
            root = savepoint_root_of_key(key)
            if root is not None and root not in needed:
                garbage.add(root)
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
    """Return the ``savepoints/<name>/<creation>/`` of a savepoint that lies below the job; None for one elsewhere."""
    if savepoint.location is not None:
        return None
    return savepoint_root_of_key(f"{SAVEPOINTS_PREFIX}{savepoint.name}/{savepoint.document.key}")


def handle_conflicts(references: Iterable[tuple[str, ObjectHandle]]) -> tuple[str, ...]:
    """Return, one line each, the keys that two references describe differently: another size or another SHA-256.

    One key is one immutable object, however many checkpoints share it; a second content under it would make one of
    them unreadable, and nobody could say which.

    Args:
        references: who refers (for people), and to what.
    Source: Flink SharedStateRegistry: a different handle under an existing key is illegal.
    """
    first: dict[str, tuple[str, ObjectHandle]] = {}
    found: dict[str, str] = {}
    for owner, handle in references:
        known_owner, known = first.setdefault(handle.key, (owner, handle))
        if (known.size, known.sha256) != (handle.size, handle.sha256):
            found.setdefault(
                handle.key,
                f"{handle.key}: {known_owner} says {known.size} bytes, SHA-256 {known.sha256[:12]}…; {owner} says"
                f" {handle.size} bytes, SHA-256 {handle.sha256[:12]}…",
            )
    return tuple(found[key] for key in sorted(found))


def is_discarded(state: ManifestState, checkpoint_id: CheckpointId, token: FencingToken) -> bool:
    """Return whether it is known that nothing which this token staged will ever be published; unknown is False.

    Known are aborted checkpoints (the newest that the state remembers), and losing tokens of retained ones.
    """
    completed = state.checkpoint(checkpoint_id)
    if completed is not None:
        return completed.token != token
    return any(aborted == checkpoint_id for _, aborted in state.aborted_sessions)


def lowest_pending(state: ManifestState) -> CheckpointId | None:
    """Return the smallest pending checkpoint id over all timelines: everything from ``chk-<it>/`` on is live."""
    return min(
        (timeline.pending.checkpoint_id for timeline in state.timelines if timeline.pending is not None), default=None
    )


def veto_retention_ms(daily: int) -> int:
    """Return how long the failing rows of a vetoed epoch are kept: `retained.daily` days, at least one."""
    return max(1, daily) * _DAY_MS


def minimum_grace_ms(timeout_ms: int) -> int:
    """Return a grace period longer than any timeout of a job whose `checkpointing.timeout` is that long."""
    return 2 * timeout_ms + _GRACE_MARGIN_MS


def deletable(state: ManifestState, session_id: SessionId, now_ms: int, grace_ms: int) -> tuple[Garbage, ...]:
    """Return the garbage that this session may delete in the store now.

    An entry qualifies when the session leads with a token granted after the entry was listed, the grace period is
    over, and the entry lies below no checkpoint that is pending or newer than a pending one.

    Args:
        state: a freshly read head.
        session_id: who wants to delete; nobody but the leader of the live timeline may.
        now_ms: the store's clock. grace_ms: of `minimum_grace_ms`.
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
    """Return the lists whose keys this session may delete in the store now: as `deletable`."""
    leader = state.timeline().leader
    if leader is None or leader.session_id != session_id:
        return ()
    return tuple(one for one in _finished_lists(state, now_ms, grace_ms) if one.since_version < leader.token)


def collectable_lists(state: ManifestState, now_ms: int, grace_ms: int) -> tuple[GarbageList, ...]:
    """Return the lists whose keys a session which leads nothing may delete in the store now: as `collectable`."""
    triggered = [timeline.pending.prefixes[0] for timeline in state.timelines if timeline.pending is not None]
    return tuple(
        one for one in _finished_lists(state, now_ms, grace_ms) if all(token > one.since_version for token in triggered)
    )


def _finished_lists(state: ManifestState, now_ms: int, grace_ms: int) -> Iterator[GarbageList]:
    """The lists whose grace period is over, and that name nothing below a checkpoint that is pending, or newer."""
    lowest = lowest_pending(state)
    for one in state.garbage_lists:
        if now_ms - one.since_ms >= grace_ms and (lowest is None or one.newest < lowest):
            yield one


def _below_finished(entry: Garbage, lowest: CheckpointId | None) -> bool:
    """Return whether an entry lies below a checkpoint older than the lowest pending one, or in a savepoint."""
    checkpoint_id = checkpoint_of_key(entry.prefix)
    if checkpoint_id is None:
        return savepoint_root_of_key(entry.prefix) is not None
    return lowest is None or checkpoint_id < lowest


def collectable(state: ManifestState, now_ms: int, grace_ms: int) -> tuple[Garbage, ...]:
    """Return the garbage that a session which leads nothing may delete in the store now.

    An entry qualifies when the grace period is over, every checkpoint that is pending now was triggered after the
    entry was listed, and the entry lies below no checkpoint that is pending or newer than a pending one. So whatever
    may have looked at it when it was listed is over or fenced, also in a job that no later leader ever comes to.

    Args:
        state: a freshly read head. now_ms: the store's clock. grace_ms: of `minimum_grace_ms`.
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
