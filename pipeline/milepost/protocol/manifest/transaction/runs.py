"""Run coverage tells the Airflow runs whose work a completed checkpoint has done (DESIGN 8.3, rule 2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from milepost.protocol.records.checkpoints import Run
from milepost.protocol.records.errors import InvalidRequest
from milepost.protocol.records.ids import CheckpointId, SessionId, session_digest
from milepost.protocol.records.manifest_state import ManifestState

SCHEDULED = "scheduled"
DATED_RUN_TYPES = frozenset({SCHEDULED, "backfill"})
"""Run types whose logical date says which stretch of the schedule they stand for. A manual run stands for now."""


@dataclass(frozen=True, slots=True)
class Covered:
    """The run's input is already part of a completed checkpoint: succeed and do nothing."""

    checkpoint_id: CheckpointId
    message: str


def instant(logical_date: str) -> datetime:
    """Return the moment that a logical date names.

    Raises:
        InvalidRequest: it is not ISO 8601, or has no offset from UTC.
    """
    try:
        moment = datetime.fromisoformat(logical_date)
    except ValueError as error:
        raise InvalidRequest(f"logical date {logical_date!r} refused: expected ISO 8601 with an offset.") from error
    if moment.tzinfo is None:
        raise InvalidRequest(f"logical date {logical_date!r} refused: expected an offset from UTC, got none.")
    return moment


def covered(state: ManifestState, session_id: SessionId, run: Run) -> Covered | None:
    """Say which completed checkpoint makes a run superfluous; None when the run has something to do.

    A run id that completed a checkpoint is covered, whatever its type; a scheduled or backfill run also when its
    logical date is not later than that of the last completed scheduled run. A CLI run never is: it may ask for many
    epochs in one session.

    Raises:
        InvalidRequest: the run's logical date cannot be read.
    """
    if run.run_id is None:
        return None
    for completed_session, checkpoint_id in reversed(state.completed_sessions):
        if completed_session == session_digest(session_id):
            return Covered(
                checkpoint_id,
                f"already covered by checkpoint {checkpoint_id}: run {run.run_id} completed it",
            )
    last = state.last_scheduled_logical_date
    if run.run_type not in DATED_RUN_TYPES or run.logical_date is None or last is None:
        return None
    if instant(run.logical_date) > instant(last):
        return None
    head = state.timeline().head
    return Covered(
        head,
        f"already covered by checkpoint {head}: logical date {run.logical_date} of {run.run_type} run {run.run_id} is"
        f" not later than {last}, the last completed scheduled one",
    )


def later_scheduled_date(last: str | None, run: Run) -> str | None:
    """Return the last scheduled logical date after that run has completed; it never goes back."""
    if run.run_type != SCHEDULED or run.logical_date is None:
        return last
    if last is not None and instant(run.logical_date) <= instant(last):
        return last
    return run.logical_date
