"""The suggested action for each condition of a job, for users without a shell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from milepost.acts import BACKFILL, CANCEL, RESUME, ROLLBACK, START, TO, VERIFY
from milepost.airflow.page.frame.commands import names_command
from milepost.epoch import counted
from milepost.errors import CheckpointError, StateCorrupt, StoreUnavailable
from milepost.jobmaster import Condition, Status, missing_input
from milepost.protocol.records import CheckpointFailureReason, CheckpointId, checkpoint_name
from milepost.views import job_badge

EPOCH = "epoch"
"""A run of the job's `__epoch` DAG, which is not an act of the form."""


_VETO = CheckpointFailureReason.QUALITY_GATE_FAILED.value

LONG_EPOCH = "The epoch takes longer than usual: look at the log of its run. If it hangs, abort it."


@dataclass(frozen=True, slots=True)
class SuggestedAction:
    """What to do next about a job.

    Attributes:
        act: name of the act in the form, or `EPOCH`; "" if no act of the job helps.
        fields: values of the act's fields, by their short names.
        command: hint for a shell, without the reason, which the badge already shows; "" if there is none.
        is_enough: whether the act alone helps. After a veto, to resume alone would read the same rows again.
    """

    text: str
    act: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    command: str = ""
    is_enough: bool = True


def suggested_action(status: Status) -> SuggestedAction:
    """Return the suggested action for the condition of a job."""
    act, text = _ACTIONS[status.condition]
    if status.condition is Condition.FAILED:
        act, text = _FAILURES.get(status.last_failure or "", (act, text))
    hint = status.next_step.removeprefix(f"{job_badge(status).reason}: ")
    command = hint if names_command(hint) else ""
    is_vetoed = status.condition is Condition.FAILED and status.last_failure == _VETO
    return SuggestedAction(text(status), act or _act_for_input(status), command=command, is_enough=not is_vetoed)


def action_after_error(error: CheckpointError | None) -> SuggestedAction:
    """Return the suggested action for a job of unknown status, by the error; None: the reading timed out."""
    if error is None or (isinstance(error, StoreUnavailable) and not error.hint):
        return SuggestedAction("Load this page again. If that times out too, check the store and the sources.")
    command = error.hint if names_command(error.hint) else ""
    target = error.details.get("rollback_to")
    if isinstance(target, int):
        name = checkpoint_name(CheckpointId(target))
        text = (
            f"Restore the objects from a copy of the store, or roll back to {name}, the newest undamaged one before it."
        )
        return SuggestedAction(text, ROLLBACK.name, {TO: target}, command)
    if isinstance(error, StateCorrupt):
        text = "Find out what else is damaged, and restore it from a copy of the store."
        return SuggestedAction(text, VERIFY.name, {}, command)
    return SuggestedAction("" if command else error.hint, command=command)


def _act_for_input(status: Status) -> str:
    """Return `EPOCH` for a healthy or stale job with unread input or rows in flight, else ""."""
    quiet = status.condition in (Condition.INITIALIZING, Condition.HEALTHY, Condition.STALE)
    return EPOCH if quiet and (status.unread_objects or status.in_flight_bytes) else ""


def _text_of_input(status: Status) -> str:
    if status.unread_objects:
        return f"{counted(status.unread_objects, 'unread object')}: the next epoch reads as many as its limits allow."
    if status.in_flight_bytes:
        return "Rows are in flight: the next epoch processes them."
    missing = missing_input(status.sources or {})
    if missing is not None:
        return f"{missing[:1].upper()}{missing[1:]}."
    return "Nothing: there is no input yet." if status.head is None else "Nothing: all input is read."


def _fixed(text: str) -> Callable[[Status], str]:
    return lambda status: text


_FAILURES: Mapping[str, tuple[str, Callable[[Status], str]]] = {
    CheckpointFailureReason.STATE_CORRUPT.value: (
        VERIFY.name,
        _fixed(
            "Find out what is damaged. Restore it from a copy of the store, or roll back to an undamaged checkpoint. "
            "Then resume."
        ),
    ),
    _VETO: (
        RESUME.name,
        _fixed("Correct the input or the rule, or quarantine the object. Then resume the job."),
    ),
}
"""Some failures of a FAILED job, by their reason -> as in `_ACTIONS`."""

_ACTIONS: Mapping[Condition, tuple[str, Callable[[Status], str]]] = {
    Condition.FAILED: (RESUME.name, _fixed("Fix the cause, then resume the job.")),
    Condition.CANCELLING: (CANCEL.name, _fixed("Make the sinks that it waits for available, then cancel again.")),
    Condition.CANCELED: (START.name, _fixed("Nothing, unless the job should run again: then start it.")),
    Condition.FINISHED: (START.name, _fixed("Nothing, unless the job should run again: then start it.")),
    Condition.RECONCILING: (EPOCH, _fixed("Run an epoch: it reconciles these sinks first.")),
    Condition.EPOCH_FAILED: (EPOCH, _fixed("Fix the cause, unless it is temporary. The next epoch tries again.")),
    Condition.SPEC_REFUSED: ("", _fixed("Undo the edit of the spec, or make the change as the runbook says.")),
    Condition.INPUT_REFUSED: ("", _fixed("Correct the objects in the source. The next epoch then reads them.")),
    Condition.UNPUBLISHED: (
        EPOCH,
        _fixed("Make these sinks available, then run an epoch: it publishes the waiting checkpoints first."),
    ),
    Condition.LEASE_OVER: (
        EPOCH,
        _fixed("Run an epoch: it takes over a checkpoint that is ready to complete, and aborts one that is not."),
    ),
    Condition.LANDING_FAILED: (
        "",
        _fixed("Fix the cause, unless it is temporary. The next scheduled landing continues from the end of the log."),
    ),
    Condition.OVERDUE: ("", _fixed("Check what writes this source. Its next object is read as usual.")),
    Condition.LATE: (EPOCH, _fixed("Run epochs until the job has caught up, or check what writes the source.")),
    Condition.STALE: ("", _fixed("Check what writes the sources. The next epoch reads what has arrived.")),
    Condition.ROWS_MISSING: (
        "",
        _fixed("Find out why rows are late or unreadable: the newest checkpoint has counts by operator and source."),
    ),
    Condition.RULES_UNMET: ("", _fixed("Look at the rule's counts in the newest checkpoint. Its rows are published.")),
    Condition.NO_INPUT: ("", _fixed("Write objects there, or correct the path of the source.")),
    Condition.RUNNING: ("", lambda status: f"Wait: checkpoint {status.pending} is running."),
    Condition.FROZEN: ("", _fixed("Wait: the backfill ends this by itself.")),
    Condition.BACKFILL_UNFINISHED: (
        BACKFILL.name,
        _fixed("Run the same backfill again, with the values of its first run."),
    ),
    Condition.INITIALIZING: ("", _text_of_input),
    Condition.HEALTHY: ("", _text_of_input),
}
