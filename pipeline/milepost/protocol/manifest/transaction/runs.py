"""Run coverage: which Airflow runs a completed checkpoint makes superfluous (DESIGN 8.3, rule 2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from milepost.errors import InvalidRequest
from milepost.protocol.records.checkpoints import Run
from milepost.protocol.records.ids import CheckpointId, SessionId, session_digest
from milepost.protocol.records.manifest_state import ManifestState

SCHEDULED = "scheduled"
DATED_RUN_TYPES = frozenset({SCHEDULED, "backfill"})
"""Run types with a logical date that identifies a part of the schedule. A manual run stands for the current time."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """A completed checkpoint already includes the run's input, so the run succeeds without doing anything."""

    checkpoint_id: CheckpointId
    message: str


def parse_logical_date(logical_date: str) -> datetime:
    """Return the time of a logical date.

    Raises:
        InvalidRequest: it is not ISO 8601, or has no UTC offset.
    """
    try:
        time = datetime.fromisoformat(logical_date)
    except ValueError as error:
        raise InvalidRequest(f"logical date {logical_date!r} refused: expected ISO 8601 with an offset.") from error
    if time.tzinfo is None:
        raise InvalidRequest(f"logical date {logical_date!r} refused: expected an offset from UTC, got none.")
    return time


def find_coverage(state: ManifestState, session_id: SessionId, run: Run) -> Coverage | None:
    """Return the completed checkpoint that makes a run superfluous; None if the run has work to do.

    A run id that completed a checkpoint is covered, whatever its type. A scheduled or backfill run is also covered if
    its logical date is not later than that of the last completed scheduled run. A CLI run is never covered, because it
    may run many epochs in one session. With a last completed scheduled date of 10:00::

        scheduled run of 09:00   covered: checkpoint of a later run has consumed its input
        scheduled run of 11:00   has work to do
        manual run of 09:00      has work to do

    Raises:
        InvalidRequest: the run's logical date cannot be parsed.
    """
    if run.run_id is None:
        return None
    for completed_session, checkpoint_id in reversed(state.completed_sessions):
        if completed_session == session_digest(session_id):
            return Coverage(
                checkpoint_id,
                f"already covered by checkpoint {checkpoint_id}: run {run.run_id} completed it",
            )
    last = state.last_scheduled_logical_date
    if run.run_type not in DATED_RUN_TYPES or run.logical_date is None or last is None:
        return None
    if parse_logical_date(run.logical_date) > parse_logical_date(last):
        return None
    head = state.timeline().head
    return Coverage(
        head,
        f"already covered by checkpoint {head}: logical date {run.logical_date} of {run.run_type} run {run.run_id} is"
        f" not later than {last}, the last completed scheduled one",
    )


def later_scheduled_date(last: str | None, run: Run) -> str | None:
    """Return the last scheduled logical date after this run has completed; it never decreases."""
    if run.run_type != SCHEDULED or run.logical_date is None:
        return last
    if last is not None and parse_logical_date(run.logical_date) <= parse_logical_date(last):
        return last
    return run.logical_date
