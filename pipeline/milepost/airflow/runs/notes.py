"""A listener of Airflow's scheduler writes the note of a run that has ended: its figures in one line, or its reason.

No task can: neither Airflow's task interface nor its execution API sets the note of a run that is there. The listener
gets the run within the scheduler's own transaction, so that the note is kept with the run's state or not at all. It
reads what the run's tasks left, once per run of a job's DAGs, and for other DAGs nothing; what somebody else wrote
stays below its own line; what it cannot read leaves the run without one, and says why in the scheduler's log. Nothing
is decided by a note.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

log = logging.getLogger(__name__)

OURS = "milepost: "
"""How the line begins that is written here, and written anew when a cleared run ends again."""

MAX_NOTE_CHARS = 1_000
"""As Airflow keeps it."""


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """Note what a run did."""
    note_run(dag_run, failed=False)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """Note why a run failed."""
    note_run(dag_run, failed=True)


def note_run(dag_run: DagRun, *, failed: bool) -> None:
    """Write a run's line into its note, within the transaction that its state is set in."""
    from sqlalchemy.orm import object_session

    from milepost.airflow.operators.job_specs import is_of_a_job

    session: Any = object_session(dag_run) if is_of_a_job(dag_run.dag_id) else None
    if session is None:
        return
    try:
        with session.no_autoflush:
            dag_run.note = with_line(dag_run.note, _line(session, dag_run, failed=failed))
    except Exception:  # for the want of a note no scheduler may fail
        log.warning("run %s of %s gets no note", dag_run.run_id, dag_run.dag_id, exc_info=True)


def with_line(note: str | None, line: str) -> str:
    """Return a note with this line first, in place of an earlier one, and with all that somebody else wrote."""
    others = "\n".join(one for one in (note or "").splitlines() if not one.startswith(OURS)).strip()
    room = MAX_NOTE_CHARS - len(OURS) - (len(others) + 2 if others else 0)
    if room < 2:
        return others
    ours = line if len(line) <= room else f"{line[: room - 1]}…"
    return f"{OURS}{ours}\n\n{others}" if others else f"{OURS}{ours}"


def _line(session: Any, dag_run: DagRun, *, failed: bool) -> str:
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    from milepost.airflow.runs.facts import facts_of, keys_of

    wanted = keys_of(dag_run.dag_id)
    found = select(XComModel).where(
        XComModel.dag_id == dag_run.dag_id,
        XComModel.run_id == dag_run.run_id,
        XComModel.key.in_({key for _, key in wanted}),
    )
    left = {(one.task_id, one.key): XComModel.deserialize_value(one) for one in session.scalars(found)}
    return facts_of(dag_run.dag_id, failed, left).line
