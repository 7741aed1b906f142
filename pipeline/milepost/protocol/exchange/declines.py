"""Declines ask for one rollback of the whole epoch to the checkpoint it began from.

A subtask that cannot go on declines; a decline is its request to roll back, with its reason. Requests reach the driver
along the data, in many copies and from several subtasks. They are deduplicated by who asks, not by time; the rollback
has one cause: that of the furthest upstream subtask with a reason of its own, because what is downstream may only have
felt the consequences. An epoch is one unit, so no rollback cascades: all its subtasks begin again from its base, in a
new epoch under a new checkpoint id.

Source: Ray streaming's JobWorker.requestRollback and the master's queue of rollback commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from milepost.protocol.records.checkpoints import SubtaskKey
from milepost.protocol.records.errors import ProtocolViolation
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.reasons import CheckpointFailureReason

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Decline:
    """One subtask refuses the checkpoint: it must be aborted.

    Attributes:
        detail: for people: which object, line, operator; no row data beyond the offending value.
        payload: opaque JSON: what the error document adds.
    """

    checkpoint_id: CheckpointId
    token: FencingToken
    level: int
    subtask: int
    reason: CheckpointFailureReason
    detail: str
    payload: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CountedDecline:
    """One subtask's request.

    Attributes:
        decline: its weightiest one. copies: how many arrived, this one included.
    """

    decline: Decline
    copies: int

    @property
    def subtask(self) -> SubtaskKey:
        return SubtaskKey(self.decline.level, self.decline.subtask)

    @property
    def echoes(self) -> bool:
        """Whether it only passes a cancel marker on, and so says nothing about the cause."""
        return self.decline.reason is CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER


@dataclass(frozen=True, slots=True)
class RecreatedSubtask:
    """A subtask whose task Spark began again inside the epoch: it alone was rolled back.

    The context of the one that was lost, the plan of its level, travels with the job, so the new one begins from the
    same base; whether it gave the same rows is what the digests compare (I12).

    Attributes:
        attempts: how many were begun, at least 2. base: checkpoint that each of them was restored from.
    """

    subtask: SubtaskKey
    attempts: int
    base: CheckpointId


def recreated(attempts: Iterable[tuple[SubtaskKey, int]], base: CheckpointId) -> tuple[RecreatedSubtask, ...]:
    """Return the subtasks that were begun more than once, by level and index.

    Args:
        attempts: of every attempt that lived to be measured: whose, and its number from 0. One that was lost left
            nothing, but the number of its successor counts it.
        base: of the epoch.
    """
    newest: dict[SubtaskKey, int] = {}
    for subtask, attempt in attempts:
        newest[subtask] = max(attempt, newest.get(subtask, 0))
    begun = sorted(newest.items(), key=lambda item: (item[0].level, item[0].subtask))
    return tuple(RecreatedSubtask(subtask, attempt + 1, base) for subtask, attempt in begun if attempt > 0)


class Declines:
    """Collects the requests of one epoch, in any order; the outcome does not depend on it."""

    def __init__(self) -> None:
        self._requests: dict[SubtaskKey, CountedDecline] = {}

    def request(self, decline: Decline) -> bool:
        """Take one request. Returns whether its subtask had not asked before."""
        asked = CountedDecline(decline, 1)
        known = self._requests.get(asked.subtask)
        if known is None:
            self._requests[asked.subtask] = asked
            return True
        weightiest = min(known.decline, decline, key=_weight)
        self._requests[asked.subtask] = replace(known, decline=weightiest, copies=known.copies + 1)
        return False

    @property
    def needed(self) -> bool:
        """Whether any subtask asked."""
        return bool(self._requests)

    def requests(self) -> tuple[CountedDecline, ...]:
        """Return all of them, the cause first."""
        return tuple(sorted(self._requests.values(), key=lambda request: _weight(request.decline)))

    def cause(self) -> Decline:
        """Return why the epoch is rolled back.

        Raises:
            ProtocolViolation: nobody asked.
        """
        if not self._requests:
            raise ProtocolViolation("no subtask asked for a rollback: it has no cause. Nothing was changed.")
        return self.requests()[0].decline

    def detail(self) -> str:
        """For people: the cause in its own words, then who else had a reason of its own."""
        others = [request.decline for request in self.requests()[1:] if not request.echoes]
        shown = [f"subtask {other.level}/{other.subtask}: {other.reason.value}" for other in others[:_SHOWN]]
        more = [f"{len(others) - _SHOWN} more"] if len(others) > _SHOWN else []
        detail = self.cause().detail
        return f"{detail.removesuffix('.')} (also {', '.join([*shown, *more])})" if others else detail


def _weight(decline: Decline) -> tuple[bool, int, int, str, str]:
    """Least first: no echo of a cancel marker, then upstream before downstream."""
    echo = decline.reason is CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
    return echo, decline.level, decline.subtask, decline.reason.value, decline.detail
