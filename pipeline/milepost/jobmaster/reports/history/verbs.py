"""Describe each event of the log with a verb: "rolled back from checkpoint 4 to checkpoint 2"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from milepost.jobmaster.job.switch_acts import SwitchAct, act_of
from milepost.protocol.log import Tombstone
from milepost.protocol.manifest.transaction import CheckpointAborted, Event, TimelineForked, TimelineSwitched
from milepost.protocol.records import (
    IMPORT_SESSION_PREFIX,
    CheckpointFailureReason,
    checkpoint_name,
    format_checkpoints,
)


def described(event: Event) -> str:
    """Return what happened, as a predicate in the past tense. The subject is the actor."""
    return _VERBS[type(event).__name__](event)


def described_tombstone(entry: Tombstone) -> str:
    """Return what a compacted entry still says."""
    verb = _COMPACTED.get(entry.event, "changed the job")
    and_aborted = "and aborted " if entry.event in ("JobCanceled", "ForkDisposed") else ""
    return f"{verb} {and_aborted}{format_checkpoints(entry.checkpoint_ids)}" if entry.checkpoint_ids else verb


def described_switch(event: TimelineSwitched, *, returns: bool = False) -> str:
    """Return what a switch of the live timeline did.

    Args:
        returns: whether the target had been live before, and another switch had left it.
    """
    left, to = checkpoint_name(event.from_head), checkpoint_name(event.to)
    match act_of(event):
        case SwitchAct.BACKFILL:
            return f"made the backfill live: {to} instead of {left}"
        case SwitchAct.MIGRATION:
            return f"moved a table: the job continues at {to}"
        case SwitchAct.START:
            return f"moved the job from {left} to {to} to start it there"
        case SwitchAct.RESTORE:
            return f"restored a savepoint as {to}"
        case SwitchAct.BOOTSTRAP:
            return f"built the first state from tables as {to}"
    if event.to == event.from_head:
        return f"continued at {to} on another timeline"
    if returns or event.to > event.from_head:
        return f"returned to {to} from {left}"
    return f"rolled back from {left} to {to}"


def _aborted(event: CheckpointAborted) -> str:
    number = event.pending.checkpoint_id
    if event.reason is CheckpointFailureReason.LEADER_TAKEN_OVER:
        return f"took over checkpoint {number} from session {event.leader.session_id}"
    return f"aborted checkpoint {number}"


def _forked(event: TimelineForked) -> str:
    at = checkpoint_name(event.timeline.head)
    if event.session_id.startswith(IMPORT_SESSION_PREFIX):
        return f"began to import a checkpoint after {at}"
    return f"began a backfill after {at}"


def _completed(event: Any) -> str:
    adopted = "" if event.adopted_by is None else ", which another session had run"
    return f"completed checkpoint {event.checkpoint.checkpoint_id}{adopted}"


def _subsumed(event: Any) -> str:
    dropped = f"dropped {format_checkpoints(event.checkpoint_ids)}, as retention says" if event.checkpoint_ids else ""
    published = "" if event.confirmed is None else _published(event.confirmed)
    return " and ".join(filter(None, (published, dropped))) or "dropped nothing"


def _published(event: Any) -> str:
    return f"published checkpoint {event.checkpoint_id} to {', '.join(event.sinks)}"


_VERBS: Mapping[str, Callable[[Any], str]] = {
    "JobCreated": lambda event: "created the job",
    "CheckpointTriggered": lambda event: (
        f"began epoch {event.pending.epoch} as checkpoint {event.pending.checkpoint_id}"
    ),
    "CheckpointRebound": lambda event: f"began another try of checkpoint {event.checkpoint_id}",
    "CheckpointCompleted": _completed,
    "CheckpointAborted": _aborted,
    "SinksConfirmed": _published,
    "CheckpointsSubsumed": _subsumed,
    "GarbageDeleted": lambda event: "deleted objects that nothing needs",
    "GarbageListed": lambda event: "listed objects that nothing needs",
    "GarbageFolded": lambda event: "merged lists of objects that nothing needs",
    "LogCompacted": lambda event: f"compacted the log up to version {event.through}",
    "JobResumed": lambda event: (
        f"resumed the job after {event.cleared_reason}" if event.cleared_reason else "resumed the job"
    ),
    "JobCanceled": lambda event: f"canceled the job at {checkpoint_name(event.result.head)}",
    "JobFinished": lambda event: f"finished the job at {checkpoint_name(event.result.head)}",
    "JobCleaned": lambda event: "completed the clean-up of the ended job",
    "JobStarted": lambda event: f"started the job again at {checkpoint_name(event.base)}",
    "CheckpointPinned": lambda event: f"pinned checkpoint {event.pin.checkpoint_id} for a reader",
    "CheckpointUnpinned": lambda event: f"released checkpoint {event.checkpoint_id}",
    "ObjectQuarantined": lambda event: f"quarantined object {event.object.key} of source {event.object.source}",
    "ObjectReleased": lambda event: f"released object {event.object.key} of source {event.object.source}",
    "TimelineSwitched": described_switch,
    "TimelineForked": _forked,
    "ForkDisposed": lambda event: f"discarded the unfinished backfill on timeline {event.timeline}",
    "TimelineFrozen": lambda event: "paused new epochs for the end of a backfill",
    "TimelineThawed": lambda event: "ended the pause for a backfill",
    "SinkReconciled": lambda event: f"moved the table of sink {event.sink} to the live timeline",
    "RealignmentDecided": lambda event: f"realigned the table of sink {event.sink} with {checkpoint_name(event.to)}",
    "SavepointCreated": lambda event: (
        f"created savepoint {event.savepoint.name} of checkpoint {event.savepoint.checkpoint_id}"
    ),
    "SavepointDisposed": lambda event: f"deleted savepoint {event.savepoint.name}",
}
"""Name of the type of each event -> its description."""

_COMPACTED = {
    "JobCreated": "created the job",
    "CheckpointTriggered": "began",
    "CheckpointRebound": "began another try of",
    "CheckpointCompleted": "completed",
    "CheckpointAborted": "aborted",
    "SinksConfirmed": "published",
    "CheckpointsSubsumed": "dropped checkpoints, as retention says",
    "GarbageDeleted": "deleted objects that nothing needs",
    "GarbageListed": "listed objects that nothing needs",
    "GarbageFolded": "merged lists of objects that nothing needs",
    "LogCompacted": "compacted the log",
    "JobResumed": "resumed the job",
    "JobCanceled": "canceled the job",
    "JobFinished": "finished the job",
    "JobCleaned": "completed the clean-up of the ended job",
    "JobStarted": "started the job again",
    "CheckpointPinned": "pinned",
    "CheckpointUnpinned": "released",
    "ObjectQuarantined": "quarantined an object",
    "ObjectReleased": "released an object",
    "TimelineSwitched": "moved the job to another timeline",
    "TimelineForked": "began a backfill or an import",
    "ForkDisposed": "discarded an unfinished backfill",
    "TimelineFrozen": "paused new epochs for the end of a backfill",
    "TimelineThawed": "ended the pause for a backfill",
    "SinkReconciled": "moved a table to the live timeline",
    "RealignmentDecided": "realigned a table",
    "SavepointCreated": "created a savepoint of",
    "SavepointDisposed": "deleted a savepoint of",
}
"""The same for compacted entries, which have only the numbers of checkpoints."""
