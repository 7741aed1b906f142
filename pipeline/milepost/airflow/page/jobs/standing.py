"""The standing of a job: the one thing about it that matters first, in a word, a tone and a reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from milepost.jobmaster.jobmaster import Status
from milepost.protocol.records.manifest_state import CleanUp, JobStatus


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
    reason: str = ""

    @property
    def urgency(self) -> int:
        return list(Tone).index(self.tone)


def standing_of(status: Status) -> Standing:
    """Return how a job stands, by the first thing that is wrong with it, in the order of `Status.next_step`."""
    return _wrong(status) or _late(status) or _quiet(status)


def _wrong(status: Status) -> Standing | None:
    """Return what keeps epochs from running, or their results from being seen; None: nothing does."""
    failure = ": ".join(filter(None, (status.last_failure, status.last_failure_detail)))
    if status.job_status == JobStatus.FAILED.value:
        return Standing(Tone.BAD, "failed", f"{failure}. No epoch runs until it is resumed.")
    if status.result is not None:
        over = "" if status.result.clean_up == CleanUp.CLEAN.value else " Its clean-up is not over."
        reason = f"Incarnation {status.result.incarnation} ended at {status.result.at}. {status.result.detail}{over}"
        return Standing(Tone.WARN if over else Tone.CALM, status.job_status, reason.strip())
    if status.reconciling:
        waiting = ", ".join(status.reconciling)
        return Standing(Tone.WARN, "reconciling", f"Sinks {waiting} have yet to follow timeline {status.timeline}.")
    if status.last_failure is not None and status.leader is not None:  # else of a timeline that was left
        return Standing(Tone.BAD, "epoch failed", f"{failure}. Nothing of it is visible; the next epoch tries again.")
    if status.spec_refused is not None:
        return Standing(Tone.BAD, "spec refused", status.spec_refused)
    refused = next((one.refused for one in status.static_sources.values() if one.refused is not None), None)
    stopped = status.source_changed or status.bad_name or refused
    if stopped is not None:
        return Standing(Tone.BAD, "input refused", stopped)
    if status.unconfirmed:
        return Standing(Tone.WARN, "unpublished", f"Checkpoints wait for sinks {', '.join(status.unconfirmed)}.")
    if status.lease_over is not None:
        reason = f"Nobody works on checkpoint {status.pending} any more: {status.lease_over}."
        return Standing(Tone.WARN, "lease over", reason)
    return None


def _late(status: Status) -> Standing | None:
    overdue = [f"source {name}: {one.overdue}" for name, one in (status.sources or {}).items() if one.overdue]
    return Standing(Tone.WARN, "overdue", "; ".join(overdue)) if overdue else None


def _quiet(status: Status) -> Standing:
    """Return how a job stands that nothing is wrong with."""
    if status.pending is not None:
        return Standing(Tone.BUSY, "running")
    if status.frozen is not None:
        reason = f"A backfill keeps others from triggering until {status.frozen.until}."
        return Standing(Tone.BUSY, "frozen", reason)
    if status.unfinished_backfills:
        names = ", ".join(one.fork for one in status.unfinished_backfills)
        return Standing(Tone.CALM, "backfill unfinished", f"Timelines {names} wait to be continued.")
    if status.head is None:
        return Standing(Tone.CALM, "no epoch yet", "The first epoch with input makes the first checkpoint.")
    return Standing(Tone.GOOD, "healthy")
