"""What happened to a job, who did it and why, from an event of the log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from milepost.epoch import iso_ms
from milepost.jobmaster.reports.history.actors import actor_of, reason_of
from milepost.jobmaster.reports.history.verbs import described, described_switch
from milepost.protocol.manifest.transaction import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    Event,
    ForkDisposed,
    JobCanceled,
    JobResumed,
    JobStarted,
    ObjectQuarantined,
    ObjectReleased,
    RealignmentDecided,
    SavepointCreated,
    SavepointDisposed,
    TimelineForked,
    TimelineSwitched,
)
from milepost.protocol.records import IMPORT_SESSION_PREFIX, Actor, CheckpointFailureReason

_OF_PEOPLE = (
    JobCanceled, JobResumed, JobStarted, TimelineSwitched, TimelineForked, ForkDisposed, RealignmentDecided,
    SavepointCreated, SavepointDisposed, ObjectQuarantined, ObjectReleased,
)  # fmt: skip
_ABORTS_OF_PEOPLE = (CheckpointFailureReason.ABORTED_BY_USER, CheckpointFailureReason.LEADER_TAKEN_OVER)


@dataclass(frozen=True, slots=True)
class HistoryAct:
    """An event of the log, for people.

    Attributes:
        what: a predicate in the past tense. why: what was typed, or what made it necessary; "" if it is not recorded.
    """

    version: int
    time: str
    what: str
    who: Actor
    why: str


def act_of_event(version: int, event: Event, *, returns: bool = False) -> HistoryAct:
    """Return an event for people. returns: as in `described_switch`."""
    what = described_switch(event, returns=returns) if isinstance(event, TimelineSwitched) else described(event)
    return HistoryAct(version, iso_ms(event.at_ms), what, *_decision(event))


def _decision(event: Event) -> tuple[Actor, str]:
    """Return actor and reason of an event: those that it stores, otherwise those of its session and detail."""
    decision = getattr(event, "decided_by", None)
    if decision is not None:
        return decision.actor, decision.why
    detail = _detail(event)
    who = actor_of(_session_id(event), detail)
    took_over = isinstance(event, CheckpointAborted) and event.reason is CheckpointFailureReason.LEADER_TAKEN_OVER
    return who, "" if took_over else reason_of(detail, who)


def acts_of_people(events: Iterable[tuple[int, Event]], returns: Collection[int]) -> tuple[HistoryAct, ...]:
    """Return the acts of people among events, in their order.

    Args:
        events: with their versions. returns: as `find_returns`.
    """
    own = ((version, event) for version, event in events if _is_of_people(event))
    return tuple(act_of_event(version, event, returns=version in returns) for version, event in own)


def find_returns(events: Sequence[tuple[int, Event]]) -> frozenset[int]:
    """Return the versions of switches to a checkpoint that an earlier one of these switches had left.

    Example: after a rollback from checkpoint 4 to 2, a switch from checkpoint 6 to 4 is a return.

    Args:
        events: with their versions, newest first.
    """
    returns: set[int] = set()
    left: dict[int, int] = {}
    for version, event in reversed(events):
        if isinstance(event, TimelineSwitched):
            left_by = left.get(int(event.to))
            if left_by is not None:
                returns.add(version)
                left = {one: by for one, by in left.items() if by != left_by or one > event.to}
            left |= dict.fromkeys(map(int, event.discarded), version)
    return frozenset(returns)


def _is_of_people(event: Event) -> bool:
    if isinstance(event, CheckpointAborted):
        return event.reason in _ABORTS_OF_PEOPLE
    imports = isinstance(event, TimelineForked) and event.session_id.startswith(IMPORT_SESSION_PREFIX)
    return isinstance(event, _OF_PEOPLE) and not imports


def _session_id(event: Event) -> str:
    match event:
        case CheckpointTriggered():
            return event.leader.session_id
        case CheckpointCompleted():
            return event.adopted_by or event.checkpoint.session_id
        case CheckpointAborted():
            return event.aborted_by
    frozen = getattr(event, "freeze", None)
    return str(getattr(event if frozen is None else frozen, "session_id", ""))


def _detail(event: Event) -> str:
    return event.result.detail if isinstance(event, JobCanceled) else str(getattr(event, "detail", ""))
