"""The badge of a job: its condition as a word, a tone and a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from milepost.jobmaster import Condition, Grade, Status
from milepost.views.text import failure_text, show_time, since_text
from milepost.views.tree import Meaning


@dataclass(frozen=True, slots=True)
class JobBadge:
    """The condition of a job, for display.

    Attributes:
        reason: cause and consequence; "" if nothing is wrong. since: when it began, as text; "" if that is not known.
    """

    tone: Meaning
    word: str
    reason: str
    since: str = ""

    @property
    def urgency(self) -> int:
        return list(Meaning).index(self.tone)


def job_badge(status: Status) -> JobBadge:
    """Return the badge for the condition of a job."""
    tone, reason = _BADGES[status.condition]
    if status.condition in _OF_TABLES and status.verdict is not None:
        tone = grade_meaning(status.verdict.grade)
    return JobBadge(tone, status.condition.value.replace("-", " "), reason(status), since_text(status.since))


def grade_meaning(grade: Grade) -> Meaning:
    return _GRADES[grade]


def grade_word(question: str, grade: Grade) -> str:
    """Return the badge of a finding. Example: `complete`, or `rows missing`; `completeness` if it is unknown."""
    met, unmet, unknown = _FINDINGS[question]
    return met if grade is Grade.GOOD else unknown if grade is Grade.UNKNOWN else unmet


def _failure(status: Status) -> str:
    return failure_text(status.last_failure, status.last_failure_detail)


def _ended(status: Status) -> str:
    result = status.result
    return "" if result is None else f"The job ended at {result.at}: {result.detail}"


def _overdue(status: Status) -> str:
    sources = (status.sources or {}).items()
    return "; ".join(f"source {name}: {source.overdue}" for name, source in sources if source.overdue)


def _landing_failed(status: Status) -> str:
    logs = [source.log for source in (status.sources or {}).values() if source.log is not None]
    failed = [f"{log.failed.message} (At {show_time(log.failed_at)}.)" for log in logs if log.failed is not None]
    return " ".join((*failed, "Epochs process the input that was landed before."))


def _unusual(status: Status) -> str:
    """Return the findings that are not good, with their questions."""
    verdict = status.verdict
    if verdict is None:
        return ""
    findings = {"Freshness": verdict.fresh, "Completeness": verdict.complete, "Rules": verdict.right}
    return ". ".join(f"{name}: {one.text}" for name, one in findings.items() if one.grade > Grade.GOOD)


def _frozen(status: Status) -> str:
    until = "" if status.frozen is None else f" until {status.frozen.until}"
    return f"A backfill blocks new checkpoints{until}."


_GRADES = {
    Grade.UNKNOWN: Meaning.CALM,
    Grade.GOOD: Meaning.GOOD,
    Grade.WARNING: Meaning.WARN,
    Grade.BAD: Meaning.BAD,
}

_OF_TABLES = (Condition.STALE, Condition.ROWS_MISSING, Condition.RULES_UNMET)
"""Conditions with the color of the job's verdict."""

_BADGES: dict[Condition, tuple[Meaning, Callable[[Status], str]]] = {
    Condition.FAILED: (
        Meaning.BAD,
        lambda status: f"{_failure(status)}. No epoch runs until it is resumed.",
    ),
    Condition.CANCELLING: (Meaning.WARN, lambda status: f"{_ended(status)} Its clean-up is not finished."),
    Condition.CANCELED: (Meaning.CALM, _ended),
    Condition.FINISHED: (Meaning.CALM, _ended),
    Condition.RECONCILING: (
        Meaning.WARN,
        lambda status: f"Sinks {', '.join(status.reconciling)} do not yet show timeline {status.timeline}.",
    ),
    Condition.EPOCH_FAILED: (
        Meaning.BAD,
        lambda status: f"{_failure(status)}. None of its rows are visible. The next epoch tries again.",
    ),
    Condition.SPEC_REFUSED: (Meaning.BAD, lambda status: str(status.spec_refused)),
    Condition.INPUT_REFUSED: (Meaning.BAD, lambda status: status.next_step),
    Condition.UNPUBLISHED: (
        Meaning.WARN,
        lambda status: f"Completed checkpoints are not yet published to sinks {', '.join(status.unconfirmed)}.",
    ),
    Condition.LEASE_OVER: (
        Meaning.WARN,
        lambda status: f"No session works on checkpoint {status.pending}: {status.lease_over}.",
    ),
    Condition.LANDING_FAILED: (Meaning.BAD, _landing_failed),
    Condition.OVERDUE: (Meaning.WARN, _overdue),
    Condition.LATE: (Meaning.WARN, lambda status: status.next_step),
    Condition.STALE: (Meaning.WARN, _unusual),
    Condition.ROWS_MISSING: (Meaning.WARN, _unusual),
    Condition.RULES_UNMET: (Meaning.WARN, _unusual),
    Condition.NO_INPUT: (Meaning.WARN, lambda status: status.next_step),
    Condition.RUNNING: (Meaning.BUSY, lambda status: ""),
    Condition.FROZEN: (Meaning.BUSY, _frozen),
    Condition.BACKFILL_UNFINISHED: (
        Meaning.CALM,
        lambda status: (
            f"Unfinished backfills on timelines {', '.join(backfill.fork for backfill in status.unfinished_backfills)}."
        ),
    ),
    Condition.INITIALIZING: (Meaning.CALM, lambda status: "The first epoch with input creates the first checkpoint."),
    Condition.HEALTHY: (Meaning.GOOD, lambda status: ""),
}

_FINDINGS: Mapping[str, tuple[str, str, str]] = {
    "fresh": ("fresh", "stale", "freshness"),
    "complete": ("complete", "rows missing", "completeness"),
    "right": ("right", "rules unmet", "rules"),
}
"""Question of a verdict -> its badge if the answer is yes, no or unknown."""
