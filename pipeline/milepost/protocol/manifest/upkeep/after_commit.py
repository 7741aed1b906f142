"""Confirmation, subsumption and deletion. Each may happen late, twice or never after the commit (I8, I11)."""

from __future__ import annotations

from dataclasses import replace

from milepost.errors import ProtocolViolation
from milepost.protocol.manifest.transaction.answers import AlreadyDone, Answer, Outcome, Transition, advance
from milepost.protocol.manifest.transaction.events import CheckpointsSubsumed, SinksConfirmed
from milepost.protocol.manifest.transaction.preconditions import check_garbage, find_pending, is_live_leader
from milepost.protocol.manifest.transaction.requests import ConfirmSinksRequest, GarbageDeletedRequest, SubsumeRequest
from milepost.protocol.manifest.upkeep.compaction import compacted_through
from milepost.protocol.manifest.upkeep.floors import raised_floors
from milepost.protocol.manifest.upkeep.garbage import add_garbage, forget_deleted
from milepost.protocol.records.checkpoints import CompletedCheckpoint
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.retention.ancestry import drop_empty_timelines
from milepost.protocol.retention.retention import deletable, deletable_lists, subsumable


def confirm_sinks(state: ManifestState, request: ConfirmSinksRequest, now_ms: int) -> Answer:
    """Record that sinks have committed a checkpoint. Any session and token may report this; it is never undone (I11).

    Raises:
        ProtocolViolation: the checkpoint is not completed, or has no such sink.
    """
    checkpoint, sink_names = state.checkpoint(request.checkpoint_id), ", ".join(request.sinks)
    if checkpoint is None:
        pending = find_pending(state, request.checkpoint_id) is not None
        if pending or not 0 < request.checkpoint_id < state.next_checkpoint_id:
            raise ProtocolViolation(
                f"checkpoint {request.checkpoint_id}: confirmation of {sink_names} refused: expected a completed"
                f" checkpoint, got {'a pending one' if pending else 'one never triggered'}. Nothing was written."
            )
    elif not set(request.sinks) <= set(checkpoint.sinks):
        raise ProtocolViolation(
            f"checkpoint {request.checkpoint_id}: confirmation of {sink_names} refused: expected sinks of"
            f" {list(checkpoint.sinks)}. Nothing was written."
        )
    new_sinks = () if checkpoint is None else tuple(sink for sink in checkpoint.unconfirmed if sink in request.sinks)
    if checkpoint is None or not new_sinks:
        return AlreadyDone(
            Outcome.ALREADY_CONFIRMED,
            f"checkpoint {request.checkpoint_id}: confirmed by {sink_names} before",
            request.checkpoint_id,
        )
    confirmed = replace(checkpoint, unconfirmed=tuple(sink for sink in checkpoint.unconfirmed if sink not in new_sinks))
    duration_ms = None if confirmed.unconfirmed else _duration_ms(checkpoint, request.published_ms)
    if duration_ms is not None:
        confirmed = replace(confirmed, summary=confirmed.summary | {"duration_ms": duration_ms})
    return advance(
        state,
        SinksConfirmed(now_ms, request.checkpoint_id, new_sinks, request.session_id, duration_ms),
        checkpoints=tuple(confirmed if other is checkpoint else other for other in state.checkpoints),
    )


def _duration_ms(checkpoint: CompletedCheckpoint, published_ms: int | None) -> int | None:
    """Return how long the epoch took, from its trigger to its publication; None: unknown, or the clocks disagree."""
    started_ms = checkpoint.summary.get("started_ms")
    if not isinstance(started_ms, int) or published_ms is None or published_ms < started_ms:
        return None
    return published_ms - started_ms


def subsume(state: ManifestState, request: SubsumeRequest, now_ms: int) -> Answer:
    """Drop confirmed checkpoints from the retained set, and list objects that only they refer to as garbage (I8).

    The request's confirmation is applied first, in the same transition. If nothing can be dropped, only the
    confirmation is recorded, and the answer is that of `confirm_sinks`.

    Raises: as `_subsume` and `confirm_sinks`; then nothing was changed.
    """
    if request.confirms is None:
        return _subsume(state, request, now_ms)
    confirmation = confirm_sinks(state, request.confirms, now_ms)
    if not isinstance(confirmation, Transition):
        return _subsume(state, request, now_ms)
    subsumption = _subsume(replace(state, checkpoints=confirmation.state.checkpoints), request, now_ms)
    if not isinstance(subsumption, Transition):
        return confirmation
    assert isinstance(subsumption.event, CheckpointsSubsumed) and isinstance(confirmation.event, SinksConfirmed)
    return replace(subsumption, event=replace(subsumption.event, confirmed=confirmation.event))


def _subsume(state: ManifestState, request: SubsumeRequest, now_ms: int) -> Answer:
    """Drop checkpoints, as described in `subsume`.

    An abandoned timeline is dropped from the state with its last retained checkpoint.

    Returns:
        A transition, or AlreadyDone: NOT_LEADER (the current leader subsumes), or NOTHING_TO_SUBSUME: they were dropped
        already, a sink that must still follow a decision may show one of them, or a checkpoint may need landed records
        below the proposed floors.
    Raises:
        ProtocolViolation: the policy retains one of them, a garbage key is live, or the request compacts a log entry
            that must stay whole.
    """
    if not is_live_leader(state, request.session_id):
        return AlreadyDone(Outcome.NOT_LEADER, "a newer session leads: it subsumes")
    dropped = tuple(
        sorted(checkpoint_id for checkpoint_id in set(request.checkpoint_ids) if state.checkpoint(checkpoint_id))
    )
    if not dropped:
        return AlreadyDone(Outcome.NOTHING_TO_SUBSUME, "none of these checkpoints is still retained")
    if state.reconciliation is not None:
        return AlreadyDone(
            Outcome.NOTHING_TO_SUBSUME, "a sink must still follow: the checkpoint that its table shows is retained"
        )
    required = set(dropped) - set(subsumable(state, request.policy))
    if required:
        raise ProtocolViolation(
            f"job {state.job}: subsumption of checkpoints {sorted(required)} refused: the policy or I8 keeps them."
            " Nothing was written."
        )
    checkpoints = tuple(checkpoint for checkpoint in state.checkpoints if checkpoint.checkpoint_id not in dropped)
    floors = raised_floors(state, checkpoints, request.floors)
    if floors is None:
        return AlreadyDone(
            Outcome.NOTHING_TO_SUBSUME, "a checkpoint that the plan did not know may read landed records"
        )
    check_garbage(state, checkpoints, request.garbage, floors)
    garbage = add_garbage(state, request.garbage, request.list_sha256, now_ms)
    return advance(
        state,
        CheckpointsSubsumed(now_ms, dropped, garbage.new_entries, request.session_id, garbage.new_list),
        checkpoints=checkpoints,
        timelines=drop_empty_timelines(state.timelines, checkpoints),
        garbage=garbage.entries,
        garbage_lists=garbage.lists,
        compacted=compacted_through(state, request.compacted),
        floors=floors,
    )


def forget_garbage(state: ManifestState, request: GarbageDeletedRequest, now_ms: int) -> Answer:
    """Remove garbage from the state after it was deleted from the store.

    Returns:
        A transition, or AlreadyDone: NOT_LEADER (a later leader deletes it again, harmlessly) or NOTHING_TO_FORGET.
    Raises:
        ProtocolViolation: an entry may not be deleted yet.
    """
    if not is_live_leader(state, request.session_id):
        return AlreadyDone(Outcome.NOT_LEADER, "a newer session leads: it deletes what is listed")
    return forget_deleted(
        state,
        request,
        now_ms,
        deletable(state, request.session_id, now_ms, request.grace_ms),
        deletable_lists(state, request.session_id, now_ms, request.grace_ms),
        "of an earlier leader",
    )
