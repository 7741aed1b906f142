"""Answers of subtasks, and the driver's check that they form one consistent epoch (I7, I12).

Answers travel with the data, so the driver may receive several copies of each, from several Spark attempts. An attempt
is identified by the digest of what it sent: two attempts are the same if and only if their digests are equal. Each
acknowledgement names the attempts it consumed. Only comparing all copies of all of them reveals a mixed epoch::

    0/0 acknowledges as d1; 1/0 acknowledges, having consumed d1 of 0/0     verified
    0/0 acknowledges as d1; 1/0 acknowledges, having consumed d2 of 0/0     ATTEMPTS_MIXED
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from milepost.codec import encode, from_json, load
from milepost.errors import CheckpointError, EnvironmentUnusable, StateCorrupt, SubtaskDeclined
from milepost.protocol.exchange.declines import Decline, Declines
from milepost.protocol.records.checkpoints import SubtaskKey
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.reasons import CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class ConsumedAttempt:
    """The attempt of a sender whose channel a subtask read up to its barrier."""

    level: int
    subtask: int
    attempt_digest: str


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One subtask has snapshotted and staged everything up to the barrier.

    Attributes:
        token: fencing token of the Spark job.
        attempt_digest: digest of everything that this attempt sent, staged and snapshotted.
        consumed: one per sender, in any order.
        payload: opaque JSON: state handles, staged files, counters.
        measured: opaque JSON. Attempts with equal digests may differ only in this; the first copy counts.
    """

    checkpoint_id: CheckpointId
    token: FencingToken
    level: int
    subtask: int
    attempt_digest: str
    consumed: tuple[ConsumedAttempt, ...]
    payload: dict[str, object] = field(default_factory=dict)
    measured: dict[str, object] = field(default_factory=dict)


SubtaskAnswer = Acknowledgement | Decline


class TaskAcknowledgeResult(Enum):
    """Result for one copy of an acknowledgement, as in Flink.

    SUCCESS: the first copy. DUPLICATE: another copy of the same attempt. UNKNOWN: from a subtask that is not expected.
    DISCARDED: of another checkpoint or token, such as a late answer of a fenced Spark job.
    """

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class VerifiedAnswers:
    """All expected subtasks acknowledged, and their attempts are consistent.

    Attributes:
        acknowledgements: one per expected subtask, by level and index.
        results: number of copies per result.
    """

    acknowledgements: tuple[Acknowledgement, ...]
    results: dict[TaskAcknowledgeResult, int]

    def subtasks(self) -> tuple[SubtaskKey, ...]:
        """Return the subtasks that acknowledged, for `CompleteRequest.acknowledged`."""
        return tuple(SubtaskKey(ack.level, ack.subtask) for ack in self.acknowledgements)


def encode_answer(answer: SubtaskAnswer) -> str:
    """Return an answer as canonical JSON: equal answers have equal text, whichever attempt wrote them (I12)."""
    tag = "acknowledge" if isinstance(answer, Acknowledgement) else "decline"
    return f'{{"{tag}":{encode(answer).decode()}}}'


def decode_answer(text: str) -> SubtaskAnswer:
    """Return the answer that `encode_answer` wrote. Raises StateCorrupt."""
    value = load(text, "answer of a subtask")
    if isinstance(value, dict) and value.keys() == {"acknowledge"}:
        return from_json(Acknowledgement, value["acknowledge"], "acknowledgement")
    if isinstance(value, dict) and value.keys() == {"decline"}:
        return from_json(Decline, value["decline"], "decline")
    raise StateCorrupt("answer of a subtask: expected an object with one key, `acknowledge` or `decline`.")


def verify(
    checkpoint_id: CheckpointId, token: FencingToken, expected: Iterable[SubtaskKey], answers: Iterable[SubtaskAnswer]
) -> VerifiedAnswers:
    """Check all copies of all answers of one epoch.

    Args:
        checkpoint_id, token: of the epoch; answers for another checkpoint or token are discarded.
        expected: every subtask of the epoch.
        answers: everything that reached the driver, in any order, including copies and forwarded declines.
    Raises:
        SubtaskDeclined: `details["reason"]` is the decline's own, ATTEMPTS_MIXED or ACKNOWLEDGEMENT_MISSING. A decline
            takes precedence, because it explains missing answers.
        EnvironmentUnusable: a subtask declined because its machine or a service cannot be used.
        StateCorrupt: a subtask could not restore its state.
    """
    expected_keys = set(expected)
    results = dict.fromkeys(TaskAcknowledgeResult, 0)
    accepted: dict[SubtaskKey, Acknowledgement] = {}
    declines = Declines()
    mixed: list[Acknowledgement] = []
    for answer in answers:
        key = SubtaskKey(answer.level, answer.subtask)
        if answer.checkpoint_id != checkpoint_id or answer.token != token:
            results[TaskAcknowledgeResult.DISCARDED] += 1
        elif isinstance(answer, Decline):
            declines.request(answer)
        elif key not in expected_keys:
            results[TaskAcknowledgeResult.UNKNOWN] += 1
        elif key not in accepted:
            accepted[key] = answer
            results[TaskAcknowledgeResult.SUCCESS] += 1
        else:
            results[TaskAcknowledgeResult.DUPLICATE] += 1
            if not _same(answer, accepted[key]):
                mixed.append(answer)
    if declines.has_requests:
        raise _declined_by(declines)
    if mixed:
        raise _declined(
            checkpoint_id,
            CheckpointFailureReason.ATTEMPTS_MIXED,
            f"subtask {mixed[0].level}/{mixed[0].subtask} acknowledged from two attempts that differ",
        )
    missing = sorted((key.level, key.subtask) for key in expected_keys - accepted.keys())
    if missing:
        raise _declined(
            checkpoint_id,
            CheckpointFailureReason.ACKNOWLEDGEMENT_MISSING,
            f"{len(missing)} of {len(expected_keys)} expected subtasks did not answer: (level, subtask) {missing[:8]}",
        )
    ordered = tuple(sorted(accepted.values(), key=lambda ack: (ack.level, ack.subtask)))
    _check_consumed(checkpoint_id, ordered, accepted)
    return VerifiedAnswers(ordered, results)


def _same(left: Acknowledgement, right: Acknowledgement) -> bool:
    """Return whether two attempts are the same: they sent and consumed the same (I12)."""
    return left.attempt_digest == right.attempt_digest and set(left.consumed) == set(right.consumed)


_ERRORS: dict[CheckpointFailureReason, type[CheckpointError]] = {
    CheckpointFailureReason.ENVIRONMENT_UNUSABLE: EnvironmentUnusable,
    CheckpointFailureReason.STATE_CORRUPT: StateCorrupt,
}
"""Errors for declines that a new epoch does not resolve."""


def _declined_by(declines: Declines) -> CheckpointError:
    decline = declines.cause()
    detail = declines.detail()
    return _ERRORS.get(decline.reason, SubtaskDeclined)(
        f"checkpoint {decline.checkpoint_id}: subtask {decline.level}/{decline.subtask} declined:"
        f" {decline.reason.value}: {detail.removesuffix('.')}. Nothing of this epoch is visible.",
        hint=str(decline.payload.get("hint") or decline.reason.remedy),
        reason=decline.reason.value,
        checkpoint_id=decline.checkpoint_id,
        level=decline.level,
        subtask=decline.subtask,
        detail=detail,
        payload=decline.payload,
        rollback_requests=[
            {
                "level": request.subtask.level,
                "subtask": request.subtask.subtask,
                "reason": request.decline.reason.value,
                "detail": request.decline.detail,
                "copies": request.copies,
            }
            for request in declines.requests()
        ],
    )


def _check_consumed(
    checkpoint_id: CheckpointId, ordered: tuple[Acknowledgement, ...], by_key: dict[SubtaskKey, Acknowledgement]
) -> None:
    """Raise SubtaskDeclined unless every consumed attempt is the acknowledged one (I7)."""
    for ack in ordered:
        for consumed in ack.consumed:
            sender = by_key.get(SubtaskKey(consumed.level, consumed.subtask))
            if sender is None or sender.attempt_digest != consumed.attempt_digest:
                got = "is not expected" if sender is None else f"acknowledged as {sender.attempt_digest}"
                raise _declined(
                    checkpoint_id,
                    CheckpointFailureReason.ATTEMPTS_MIXED,
                    f"subtask {ack.level}/{ack.subtask} consumed attempt {consumed.attempt_digest} of subtask"
                    f" {consumed.level}/{consumed.subtask}, which {got}",
                )


def _declined(checkpoint_id: CheckpointId, reason: CheckpointFailureReason, detail: str) -> SubtaskDeclined:
    return SubtaskDeclined(
        f"checkpoint {checkpoint_id}: refused: {reason.value}: {detail}. Nothing of this epoch is visible.",
        hint="Run the epoch again.",
        reason=reason.value,
        checkpoint_id=checkpoint_id,
        detail=detail,
    )
