"""The next step about a job, as somebody takes it who has Airflow's pages and no shell: one of each condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from milepost.airflow.operate.backfill import BACKFILL
from milepost.airflow.operate.lifecycle import CANCEL, RESUME, START
from milepost.airflow.operate.rollback import ROLLBACK, TO
from milepost.airflow.operate.upkeep import VERIFY
from milepost.airflow.page.frame.commands import names_command
from milepost.airflow.page.jobs.standing import standing_of
from milepost.epoch.quantities import counted
from milepost.errors import CheckpointError, StateCorrupt, StoreUnavailable
from milepost.jobmaster.jobmaster import Condition, Status, missing_input
from milepost.protocol.records.ids import CheckpointId, checkpoint_name
from milepost.protocol.records.reasons import CheckpointFailureReason

EPOCH = "epoch"
"""Stands for a run of the DAG of the job's epochs, which has no form among the acts."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """What to do next.

    Attributes:
        act: what does it: an act, by its name in the form, or `EPOCH`; "" where nothing of the job's does.
        fields: of the act, by their short names. command: the same from a shell, without the reason that a job's
            standing tells; "" where there is none.
    """

    words: str
    act: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    command: str = ""


def next_step(status: Status) -> NextStep:
    """Return the next step of a job, by its condition."""
    act, words = _STEPS[status.condition]
    if status.condition is Condition.FAILED and status.last_failure == CheckpointFailureReason.STATE_CORRUPT.value:
        act, words = VERIFY.name, _corrupt
    step = status.next_step.removeprefix(f"{standing_of(status).reason}: ")
    return NextStep(words(status), act or _of_input(status), command=step if names_command(step) else "")


def step_of_error(error: CheckpointError | None) -> NextStep:
    """Return the next step of a job whose status cannot be told, for this error; None: for want of an answer."""
    if error is None or (isinstance(error, StoreUnavailable) and not error.hint):
        return NextStep("Load this page again. If there is no answer then, look at what the store and the sources do.")
    command = error.hint if names_command(error.hint) else ""
    target = error.details.get("rollback_to")
    if isinstance(target, int):
        name = checkpoint_name(CheckpointId(target))
        words = f"Put the objects back from a copy of the store; or go back to {name}, the newest whole one before it."
        return NextStep(words, ROLLBACK.name, {TO: target}, command)
    if isinstance(error, StateCorrupt):
        return NextStep("See what else is broken, and put it back from a copy of the store.", VERIFY.name, {}, command)
    return NextStep("" if command else error.hint, command=command)


def _of_input(status: Status) -> str:
    """Return what reads what is unread, where nothing is wrong."""
    quiet = status.condition in (Condition.INITIALIZING, Condition.HEALTHY)
    return EPOCH if quiet and (status.unread_objects or status.in_flight_bytes) else ""


def _corrupt(status: Status) -> str:
    return "See what is broken; put it back from a copy of the store, or go back to a whole checkpoint. Then resume."


def _waiting(status: Status) -> str:
    if status.unread_objects:
        return f"{counted(status.unread_objects, 'unread object')}: the next epoch reads as many as its limits allow."
    if status.in_flight_bytes:
        return "Rows are in flight: the next epoch goes on with them."
    missing = missing_input(status.sources or {})
    if missing is not None:
        return f"{missing[:1].upper()}{missing[1:]}."
    return "Nothing: there is no input yet." if status.head is None else "Nothing: all input is read."


def _says(text: str) -> Callable[[Status], str]:
    return lambda status: text


_STEPS: Mapping[Condition, tuple[str, Callable[[Status], str]]] = {
    Condition.FAILED: (RESUME.name, _says("Mend the cause, then resume the job.")),
    Condition.CANCELLING: (CANCEL.name, _says("Bring back the sinks that it waits for, then cancel once more.")),
    Condition.CANCELED: (START.name, _says("Nothing, unless the job is to run again: then start it.")),
    Condition.FINISHED: (START.name, _says("Nothing, unless the job is to run again: then start it.")),
    Condition.RECONCILING: (EPOCH, _says("Run an epoch: before all else it lets these sinks follow.")),
    Condition.EPOCH_FAILED: (EPOCH, _says("Mend the cause, unless it passes by itself; the next epoch tries again.")),
    Condition.SPEC_REFUSED: ("", _says("Take back the edit of the spec, or make the change as the runbook says.")),
    Condition.INPUT_REFUSED: ("", _says("Put right what lies in the source; the next epoch then reads it.")),
    Condition.UNPUBLISHED: (EPOCH, _says("Bring these sinks back, then run an epoch: it publishes what waits first.")),
    Condition.LEASE_OVER: (EPOCH, _says("Run an epoch: it takes over what is finished, and gives up what is not.")),
    Condition.OVERDUE: ("", _says("See what writes this source: its next object is read as ever.")),
    Condition.LATE: (EPOCH, _says("Run epochs until the input is caught up with, or see what writes the source.")),
    Condition.NO_INPUT: ("", _says("Land objects there, or correct the path of the source.")),
    Condition.RUNNING: ("", lambda status: f"Wait: checkpoint {status.pending} is running."),
    Condition.FROZEN: ("", _says("Wait: the backfill ends this by itself.")),
    Condition.BACKFILL_UNFINISHED: (
        BACKFILL.name,
        _says("Run the same backfill again, with the values of its first run."),
    ),
    Condition.INITIALIZING: ("", _waiting),
    Condition.HEALTHY: ("", _waiting),
}
