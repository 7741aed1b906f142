"""The standing of a job: the one thing about it that matters first, in a word, a tone and a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from milepost.jobmaster.jobmaster import Condition, Status


class Tone(StrEnum):
    """How a state is shown, worst first: the order of a list of jobs."""

    BAD = "bad"
    WARN = "warn"
    BUSY = "busy"
    GOOD = "good"
    CALM = "calm"


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stands; reason: why, and what is true; "" where nothing is wrong."""

    tone: Tone
    word: str
    reason: str

    @property
    def urgency(self) -> int:
        return list(Tone).index(self.tone)


def standing_of(status: Status) -> Standing:
    """Return how a job stands, by its condition."""
    tone, reason = _TOLD[status.condition]
    return Standing(tone, status.condition.value.replace("-", " "), reason(status))


def _failure(status: Status) -> str:
    return ": ".join(filter(None, (status.last_failure, status.last_failure_detail)))


def _ended(status: Status) -> str:
    result = status.result
    return "" if result is None else f"Incarnation {result.incarnation} ended at {result.at}. {result.detail}".strip()


def _overdue(status: Status) -> str:
    return "; ".join(f"source {name}: {one.overdue}" for name, one in (status.sources or {}).items() if one.overdue)


def _frozen(status: Status) -> str:
    until = "" if status.frozen is None else f" until {status.frozen.until}"
    return f"A backfill keeps others from triggering{until}."


_TOLD: dict[Condition, tuple[Tone, Callable[[Status], str]]] = {
    Condition.FAILED: (Tone.BAD, lambda status: f"{_failure(status)}. No epoch runs until it is resumed."),
    Condition.CANCELLING: (Tone.WARN, lambda status: f"{_ended(status)} Its clean-up is not over."),
    Condition.CANCELED: (Tone.CALM, _ended),
    Condition.FINISHED: (Tone.CALM, _ended),
    Condition.RECONCILING: (
        Tone.WARN,
        lambda status: f"Sinks {', '.join(status.reconciling)} must still follow timeline {status.timeline}.",
    ),
    Condition.EPOCH_FAILED: (
        Tone.BAD,
        lambda status: f"{_failure(status)}. Nothing of it is visible; the next epoch tries again.",
    ),
    Condition.SPEC_REFUSED: (Tone.BAD, lambda status: str(status.spec_refused)),
    Condition.INPUT_REFUSED: (Tone.BAD, lambda status: status.next_step),
    Condition.UNPUBLISHED: (
        Tone.WARN,
        lambda status: f"Completed checkpoints wait for sinks {', '.join(status.unconfirmed)}.",
    ),
    Condition.LEASE_OVER: (
        Tone.WARN,
        lambda status: f"Nobody works on checkpoint {status.pending} any more: {status.lease_over}.",
    ),
    Condition.OVERDUE: (Tone.WARN, _overdue),
    Condition.LATE: (Tone.WARN, lambda status: status.next_step),
    Condition.NO_INPUT: (Tone.WARN, lambda status: status.next_step),
    Condition.RUNNING: (Tone.BUSY, lambda status: ""),
    Condition.FROZEN: (Tone.BUSY, _frozen),
    Condition.BACKFILL_UNFINISHED: (
        Tone.CALM,
        lambda status: f"Timelines {', '.join(one.fork for one in status.unfinished_backfills)} wait to be continued.",
    ),
    Condition.INITIALIZING: (Tone.CALM, lambda status: "The first epoch with input makes the first checkpoint."),
    Condition.HEALTHY: (Tone.GOOD, lambda status: ""),
}
