"""Scheduler listener that writes a summary line into the note of a finished run.

A task cannot do this: neither Airflow's task interface nor its execution API can set the note of an existing run. The
listener runs within the scheduler's transaction, so note and run state are stored together or not at all. It reads
XComs only for the DAGs of jobs. It preserves what other people wrote into the note. If it fails, the run has no line
and the scheduler's log has the reason. No code depends on a note.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

log = logging.getLogger(__name__)

OURS = "milepost: "
"""Prefix of our line, which is replaced when a cleared run ends again."""

MAX_NOTE_CHARS = 1_000
"""Airflow's limit."""


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """Note what a run did."""
    note_run(dag_run, failed=False)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """Note why a run failed."""
    note_run(dag_run, failed=True)


def note_run(dag_run: DagRun, *, failed: bool) -> None:
    """Write a run's line into its note, within the transaction that sets its state."""
    from sqlalchemy.orm import object_session

    from milepost.airflow.operators.dag_ids import is_of_a_job

    session: Any = object_session(dag_run) if is_of_a_job(dag_run.dag_id) else None
    if session is None:
        return
    try:
        with session.no_autoflush:
            dag_run.note = with_line(dag_run.note, _line(session, dag_run, failed=failed))
    except Exception:  # a missing note must not fail the scheduler
        log.warning("run %s of %s gets no note", dag_run.run_id, dag_run.dag_id, exc_info=True)


def with_line(note: str | None, line: str) -> str:
    r"""Return a note with our line first, in place of an older one, and the text of other authors unchanged.

    "milepost: old\n\nbob: look" and "new" -> "milepost: new\n\nbob: look"

    Our line is cut to `MAX_NOTE_CHARS`, the other text never is.
    """
    others = "\n".join(existing for existing in (note or "").splitlines() if not existing.startswith(OURS)).strip()
    room = MAX_NOTE_CHARS - len(OURS) - (len(others) + 2 if others else 0)
    if room < 2:
        return others
    ours = line if len(line) <= room else f"{line[: room - 1]}…"
    return f"{OURS}{ours}\n\n{others}" if others else f"{OURS}{ours}"


def _line(session: Any, dag_run: DagRun, *, failed: bool) -> str:
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    from milepost.airflow.runs.facts import run_facts, xcom_keys

    keys = xcom_keys(dag_run.dag_id)
    query = select(XComModel).where(
        XComModel.dag_id == dag_run.dag_id,
        XComModel.run_id == dag_run.run_id,
        XComModel.key.in_({key for _, key in keys}),
    )
    xcoms = {(xcom.task_id, xcom.key): XComModel.deserialize_value(xcom) for xcom in session.scalars(query)}
    return run_facts(dag_run.dag_id, failed, xcoms).line
