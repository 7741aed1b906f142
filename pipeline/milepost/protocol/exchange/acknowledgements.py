"""The answers of the subtasks, and the check at the driver that they belong together (I7, I12).

Answers travel with the data, so the driver may receive several copies of each, from several Spark attempts. An attempt
is identified by the digest of what it sent: two attempts are the same if and only if their digests are equal. Each
acknowledgement names the attempts it consumed; only comparing all copies of all of them shows a mixed epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from milepost.protocol.codec.records import encode, from_json, load
from milepost.protocol.exchange.declines import Decline, Declines
from milepost.protocol.records.checkpoints import SubtaskKey
from milepost.protocol.records.errors import CheckpointError, EnvironmentUnusable, StateCorrupt, SubtaskDeclined
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.reasons import CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class ConsumedAttempt:
    """The attempt of one sender whose channel a subtask read to its barrier."""

    level: int
    subtask: int
    attempt_digest: str


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One subtask has snapshotted and staged everything up to the barrier.

    Attributes:
        token: the fencing token that the Spark job ran under.
        attempt_digest: over everything this attempt sent, staged and snapshotted.
        consumed: one per sender, in any order.
        payload: opaque JSON: state handles, staged files, counters.
        measured: opaque JSON. Attempts with equal digests may differ in it only; the first copy counts.
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
    """What became of one copy of an acknowledgement: Flink's four words.

    SUCCESS: the first copy. DUPLICATE: a further copy of the same attempt. UNKNOWN: of a subtask that is not expected.
    DISCARDED: of another checkpoint, or of another token: a late answer of a fenced Spark job.
    """

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class Verified:
    """All expected subtasks acknowledged, in one consistent set of attempts.

    Attributes:
        acknowledgements: one per expected subtask, by level and index.
        results: how many copies got which result.
    """

    acknowledgements: tuple[Acknowledgement, ...]
    results: dict[TaskAcknowledgeResult, int]

    def subtasks(self) -> tuple[SubtaskKey, ...]:
        """Return who acknowledged: what `CompleteRequest.acknowledged` takes."""
        return tuple(SubtaskKey(ack.level, ack.subtask) for ack in self.acknowledgements)


def encode_answer(answer: SubtaskAnswer) -> str:
    """Return an answer as canonical JSON: equal answers have equal text, whichever attempt wrote them (I12)."""
    tag = "acknowledge" if isinstance(answer, Acknowledgement) else "decline"
    return f'{{"{tag}":{encode(answer).decode()}}}'


def decode_answer(text: str) -> SubtaskAnswer:
    """Return the answer that `encode_answer` had written. Raises StateCorrupt."""
    value = load(text, "answer of a subtask")
    if isinstance(value, dict) and value.keys() == {"acknowledge"}:
        return from_json(Acknowledgement, value["acknowledge"], "acknowledgement")
    if isinstance(value, dict) and value.keys() == {"decline"}:
        return from_json(Decline, value["decline"], "decline")
    raise StateCorrupt("answer of a subtask: expected an object with `acknowledge` or `decline` alone.")


def verify(
    checkpoint_id: CheckpointId, token: FencingToken, expected: Iterable[SubtaskKey], answers: Iterable[SubtaskAnswer]
) -> Verified:
    """Check all copies of all answers of one epoch.

    Args:
        checkpoint_id, token: whose answers they must be; others are discarded.
        expected: every subtask of the epoch.
        answers: everything that reached the driver, in any order, copies and passed-on declines included.
    Raises:
        SubtaskDeclined: with `details["reason"]`: a decline's own one; ATTEMPTS_MIXED; ACKNOWLEDGEMENT_MISSING.
            A decline goes first: it says why others are missing.
        EnvironmentUnusable: a subtask declined because its machine or a service cannot be used.
        StateCorrupt: a subtask could not restore its state.
    """
    wanted = set(expected)
    results = dict.fromkeys(TaskAcknowledgeResult, 0)
    first: dict[SubtaskKey, Acknowledgement] = {}
    rollback = Declines()
    mixed: list[Acknowledgement] = []
    for answer in answers:
        key = SubtaskKey(answer.level, answer.subtask)
        if answer.checkpoint_id != checkpoint_id or answer.token != token:
            results[TaskAcknowledgeResult.DISCARDED] += 1
        elif isinstance(answer, Decline):
            rollback.request(answer)
        elif key not in wanted:
            results[TaskAcknowledgeResult.UNKNOWN] += 1
        elif key not in first:
            first[key] = answer
            results[TaskAcknowledgeResult.SUCCESS] += 1
        else:
            results[TaskAcknowledgeResult.DUPLICATE] += 1
            if not _same(answer, first[key]):
                mixed.append(answer)
    if rollback.needed:
        raise _declined_by(rollback)
    if mixed:
        raise _declined(
            checkpoint_id,
            CheckpointFailureReason.ATTEMPTS_MIXED,
            f"subtask {mixed[0].level}/{mixed[0].subtask} acknowledged from two attempts that differ",
        )
    missing = sorted((key.level, key.subtask) for key in wanted - first.keys())
    if missing:
        raise _declined(
            checkpoint_id,
            CheckpointFailureReason.ACKNOWLEDGEMENT_MISSING,
            f"{len(missing)} of {len(wanted)} expected subtasks did not answer: (level, subtask) {missing[:8]}",
        )
    ordered = tuple(sorted(first.values(), key=lambda ack: (ack.level, ack.subtask)))
    _check_consumed(checkpoint_id, ordered, first)
    return Verified(ordered, results)


def _same(one: Acknowledgement, other: Acknowledgement) -> bool:
    """Two attempts are the same if and only if they sent the same and consumed the same (I12)."""
    return one.attempt_digest == other.attempt_digest and set(one.consumed) == set(other.consumed)


_ERRORS: dict[CheckpointFailureReason, type[CheckpointError]] = {
    CheckpointFailureReason.ENVIRONMENT_UNUSABLE: EnvironmentUnusable,
    CheckpointFailureReason.STATE_CORRUPT: StateCorrupt,
}
"""Declines that ask for another reaction than a new epoch."""


def _declined_by(rollback: Declines) -> CheckpointError:
    decline = rollback.cause()
    detail = rollback.detail()
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
            for request in rollback.requests()
        ],
    )


def _check_consumed(
    checkpoint_id: CheckpointId, ordered: tuple[Acknowledgement, ...], by_key: dict[SubtaskKey, Acknowledgement]
) -> None:
    """I7: every attempt named as consumed is the one acknowledged."""
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
