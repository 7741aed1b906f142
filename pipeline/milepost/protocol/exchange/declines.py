"""Declines: requests to roll the epoch back to the checkpoint it started from.

A subtask that cannot continue declines, with a reason. Its decline is a request for a rollback. Requests reach the
driver along the data, in many copies and from several subtasks, and are deduplicated by subtask, not by time. The
rollback has one cause: the furthest upstream subtask with a reason of its own, because subtasks downstream may have
seen only the consequences. An epoch is one unit, so rollbacks never cascade: all subtasks start again from the epoch's
base, in a new epoch with a new checkpoint id. For example::

    subtask 1/0 forwards a cancel marker
    subtask 1/1 declines with OPERATOR_ERROR
    subtask 0/2 declines with BAD_RECORD            the cause: upstream of 1/1, and not a forwarded marker

Source: Ray streaming's JobWorker.requestRollback and the master's queue of rollback commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from milepost.errors import ProtocolViolation
from milepost.protocol.records.checkpoints import SubtaskKey
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.reasons import CheckpointFailureReason

_MAX_LISTED = 3


@dataclass(frozen=True, slots=True)
class Decline:
    """One subtask declines the checkpoint, which must then be aborted.

    Attributes:
        detail: object, line and operator, for people; no row data except the offending value.
        payload: opaque JSON: additions to the error document.
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
        decline: the one with the highest precedence. copies: number of copies received.
    """

    decline: Decline
    copies: int

    @property
    def subtask(self) -> SubtaskKey:
        return SubtaskKey(self.decline.level, self.decline.subtask)

    @property
    def is_echo(self) -> bool:
        """Whether it only forwards a cancel marker, and so says nothing about the cause."""
        return self.decline.reason is CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER


@dataclass(frozen=True, slots=True)
class RecreatedSubtask:
    """A subtask of a task that Spark restarted within the epoch: only this subtask was rolled back.

    The plan of its level is part of the job, so the new task starts from the same base. Digests verify that it produced
    the same rows (I12).

    Attributes:
        attempts: number of attempts, at least 2. base: checkpoint that each of them was restored from.
    """

    subtask: SubtaskKey
    attempts: int
    base: CheckpointId


def find_recreated_subtasks(
    attempts: Iterable[tuple[SubtaskKey, int]], base: CheckpointId
) -> tuple[RecreatedSubtask, ...]:
    """Return the subtasks that were started more than once, by level and index.

    Args:
        attempts: subtask and attempt number (from 0) of every attempt that was measured. A lost attempt left no
            measurement, but its successor's number counts it.
        base: of the epoch.
    """
    newest: dict[SubtaskKey, int] = {}
    for subtask, attempt in attempts:
        newest[subtask] = max(attempt, newest.get(subtask, 0))
    started = sorted(newest.items(), key=lambda item: (item[0].level, item[0].subtask))
    return tuple(RecreatedSubtask(subtask, attempt + 1, base) for subtask, attempt in started if attempt > 0)


class Declines:
    """Collect the requests of one epoch. The outcome does not depend on their order."""

    def __init__(self) -> None:
        self._requests: dict[SubtaskKey, CountedDecline] = {}

    def request(self, decline: Decline) -> bool:
        """Add a request. Returns whether it is the first of its subtask."""
        counted = CountedDecline(decline, 1)
        existing = self._requests.get(counted.subtask)
        if existing is None:
            self._requests[counted.subtask] = counted
            return True
        strongest = min(existing.decline, decline, key=_precedence)
        self._requests[counted.subtask] = replace(existing, decline=strongest, copies=existing.copies + 1)
        return False

    @property
    def has_requests(self) -> bool:
        """Whether any subtask requested a rollback."""
        return bool(self._requests)

    def requests(self) -> tuple[CountedDecline, ...]:
        """Return all requests, the cause first."""
        return tuple(sorted(self._requests.values(), key=lambda request: _precedence(request.decline)))

    def cause(self) -> Decline:
        """Return the cause of the rollback.

        Raises:
            ProtocolViolation: there is no request.
        """
        if not self._requests:
            raise ProtocolViolation("no subtask requested a rollback, so it has no cause. Nothing was changed.")
        return self.requests()[0].decline

    def detail(self) -> str:
        """Return the cause in its own words, then other subtasks with their own reasons, for people."""
        others = [request.decline for request in self.requests()[1:] if not request.is_echo]
        shown = [f"subtask {other.level}/{other.subtask}: {other.reason.value}" for other in others[:_MAX_LISTED]]
        more = [f"{len(others) - _MAX_LISTED} more"] if len(others) > _MAX_LISTED else []
        detail = self.cause().detail
        return f"{detail.removesuffix('.')} (also {', '.join([*shown, *more])})" if others else detail


def _precedence(decline: Decline) -> tuple[bool, int, int, str, str]:
    """Return the sort key, smallest first: forwarded cancel markers last, upstream before downstream."""
    is_echo = decline.reason is CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
    return is_echo, decline.level, decline.subtask, decline.reason.value, decline.detail
