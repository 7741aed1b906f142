"""The rules and participants of a walk, and the requests to the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from milepost.protocol.exchange.acknowledgements import Acknowledgement, SubtaskAnswer, verify
from milepost.protocol.exchange.declines import Decline
from milepost.protocol.manifest import coordinator
from milepost.protocol.manifest.timelines.incarnation import cancel
from milepost.protocol.manifest.transaction.answers import Answer, Transition
from milepost.protocol.manifest.transaction.lease import sweep_decision
from milepost.protocol.manifest.transaction.requests import (
    AbortRequest,
    CancelRequest,
    CompleteRequest,
    ConfirmSinksRequest,
    GarbageDeletedRequest,
    RebindRequest,
    SubsumeRequest,
    TriggerRequest,
)
from milepost.protocol.manifest.upkeep.after_commit import confirm_sinks, forget_garbage, subsume
from milepost.protocol.records.checkpoints import ObjectHandle, Run
from milepost.protocol.records.ids import CheckpointId, FencingToken, SessionId
from milepost.protocol.records.layout import metadata_key
from milepost.protocol.records.manifest_state import ManifestState
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.protocol.retention.retention import RetentionPolicy, subsumable, unreferenced
from milepost_testkit.interleavings.model_world import (
    SUBTASKS,
    Process,
    references,
    run_key,
)
from milepost_testkit.jobs.job_log import PLAN, TIMEOUT_MS, decided, holder

NOW_MS = 1_000_000
KEEP_ONE = RetentionPolicy(1)
Decide = Callable[[ManifestState, Any, int], Answer]


@dataclass(frozen=True)
class Rules:
    """The rules of the walk: the product's rules, unless a test breaks one on purpose."""

    trigger: Decide = coordinator.trigger
    rebind: Decide = coordinator.rebind
    complete: Decide = coordinator.complete
    abort: Decide = coordinator.abort
    confirm: Decide = confirm_sinks
    subsume: Decide = subsume
    forget: Decide = forget_garbage
    cancel: Decide = cancel
    verify: Callable[..., object] = verify
    sweep: Callable[..., Any] = sweep_decision
    subsumable: Callable[..., tuple[CheckpointId, ...]] = subsumable
    unreferenced: Callable[..., tuple[str, ...]] = unreferenced
    conditional_put: bool = True
    wait_for_answers: bool = True
    sink_compares: bool = True
    publish_before_complete: bool = False
    publish_before_subsume: bool = True
    publish_before_confirm: bool = True


@dataclass(frozen=True)
class Setting:
    """The participants: leaders, whether a user cancels, and whether newcomers respect a living holder.

    With `in_turn`, a process begins once the last but one before it has ended, so at most two run concurrently.
    """

    leaders: tuple[str, ...] = ("airflow:a", "airflow:b")
    canceler: bool = False
    polite: bool = False
    faults: int = 1
    in_turn: bool = False


def request_of(rules: Rules, state: ManifestState, process: Process, goal: str) -> object:
    session, checkpoint = SessionId(process.name), CheckpointId(process.checkpoint)
    match goal:
        case "trigger":
            base = state.timeline().head
            return TriggerRequest(session, holder(session), Run(), base, PLAN, SUBTASKS, TIMEOUT_MS, "c0de", "5bec")
        case "rebind":
            return RebindRequest(session, holder(session), checkpoint, TIMEOUT_MS)
        case "complete":
            return _complete_request(state, session, process.checkpoint, process.token, swept=False)
        case "adopt":
            return _complete_request(state, session, int(process.seen[0]), int(process.seen[1]), swept=True)
        case "abandon":
            number, token = CheckpointId(int(process.seen[0])), FencingToken(int(process.seen[1]))
            taken = CheckpointFailureReason.LEADER_TAKEN_OVER
            return AbortRequest(session, number, taken, "swept", 5, token=token, swept=True)
        case "abort":
            token = FencingToken(process.token)
            reason = CheckpointFailureReason.CHECKPOINT_DECLINED
            return AbortRequest(session, checkpoint, reason, "it declined", 5, token=token)
        case "confirm":
            return ConfirmSinksRequest(session, CheckpointId(int(process.seen[0])), ("lake",))
        case "subsume":
            return _subsume_request(rules, state, session)
        case "conclude":
            confirms = ConfirmSinksRequest(session, CheckpointId(int(process.seen[0])), ("lake",))
            confirmed = rules.confirm(state, confirms, NOW_MS)
            known = confirmed.state if isinstance(confirmed, Transition) else state
            return replace(_subsume_request(rules, known, session), confirms=confirms)
        case "forget":
            return GarbageDeletedRequest(session, tuple(str(one) for one in process.seen), 0)
        case _:
            return CancelRequest(session, decided("a person says so"))


def _subsume_request(rules: Rules, state: ManifestState, session: SessionId) -> SubsumeRequest:
    dropped = rules.subsumable(state, KEEP_ONE)
    kept = [references(one) for one in state.checkpoints if one.checkpoint_id not in dropped]
    gone = [references(one) for one in state.checkpoints if one.checkpoint_id in dropped]
    return SubsumeRequest(session, KEEP_ONE, dropped, rules.unreferenced(kept, gone))


def _complete_request(
    state: ManifestState, session: SessionId, number: int, token: int, *, swept: bool
) -> CompleteRequest:
    """Return the driver's request for a finished epoch. Every epoch refers to subtask 1's first run."""
    pending = state.timeline().pending
    base = None if pending is None else state.checkpoint(pending.base)
    carried = None if base is None else base.summary["carried"] or run_key(int(base.checkpoint_id), int(base.token), 1)
    checkpoint, held = CheckpointId(number), FencingToken(token)
    metadata = ObjectHandle(metadata_key(checkpoint, held), 300, "b" * 64)
    summary: dict[str, object] = {"carried": carried}
    return CompleteRequest(session, checkpoint, held, metadata, SUBTASKS, True, ("lake",), summary, swept)


def answer_of(one: tuple[int, int, int, str]) -> SubtaskAnswer:
    number, token, subtask, kind = one
    checkpoint, held = CheckpointId(number), FencingToken(token)
    if kind == "decline":
        reason = CheckpointFailureReason.CHECKPOINT_DECLINED
        return Decline(checkpoint, held, 0, subtask, reason, "it cannot")
    return Acknowledgement(checkpoint, held, 0, subtask, kind, ())
