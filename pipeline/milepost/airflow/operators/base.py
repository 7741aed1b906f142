"""The base operator gives every task the job, its run's session, and errors that Airflow understands."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from milepost.airflow.connections import airflow_connection
from milepost.airflow.parsed_specs import parsed_spec
from milepost.airflow.task_output.lineage import lineage_settings
from milepost.airflow.task_output.outcome import Reaction, translate_errors
from milepost.airflow.task_output.task_log import keep_task_log_short
from milepost.airflow.task_output.task_secrets import mask_secrets
from milepost.airflow.task_output.telemetry import telemetry_of_airflow

if TYPE_CHECKING:
    from airflow.sdk import Context

    from milepost.jobmaster.jobmaster import JobMaster, Session

log = logging.getLogger(__name__)

RETURN_VALUE = "return_value"
"""XCom key of a task's result."""

TRIGGER = "trigger_checkpoint"
"""The first task of an epoch: what it leaves names the checkpoint that the others act for."""


def in_words(facts: Mapping[str, Any]) -> str:
    """Return measured facts as a line of a log; what is not known is left out."""
    return ", ".join(f"{name.replace('_', ' ')} {_word(value)}" for name, value in facts.items() if value is not None)


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({in_words(value)})" if value else "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_word, value)) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


class JobOperator(BaseOperator):
    """Base of the Airflow operators of a job.

    Args:
        spec_path: the job's spec file; read again by every task, so that an edit reaches the next task.
    """

    ui_color = "#e8eef7"
    if_busy = Reaction.SKIP
    """What another session's lease means: an epoch of the schedule lets it be; what a person asked for fails."""

    def __init__(self, *, spec_path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec_path = spec_path

    def execute(self, context: Context) -> Any:
        """Do this task's part, with every error turned into retry, skip or failure (`outcome.py`)."""
        keep_task_log_short()
        mask_secrets(self.spec_path)  # whatever a user's code, or an error, prints of them
        with translate_errors(context["ti"], log, if_busy=self.if_busy):
            return self.act(context)

    def act(self, context: Context) -> Any:
        """This task's part. Returns what the next tasks need to know, never rows."""
        raise TypeError(f"{type(self).__name__} must define act()")

    def jobmaster(self) -> JobMaster:
        from milepost.jobmaster.jobmaster import JobMaster

        job = replace(parsed_spec(Path(self.spec_path)), find_connection=airflow_connection)
        return JobMaster(job, lineage_settings, telemetry_of_airflow)

    def beside(self, task_id: str) -> str:
        """Return the id of another task of the same job: in a task group both have the group's prefix."""
        group, dot, _ = self.task_id.rpartition(".")
        return f"{group}{dot}{task_id}"

    def session(self, context: Context) -> Session:
        """Return the session of this DAG run: the same one in each of its tasks and tries (I3)."""
        from milepost.jobmaster.jobmaster import Session

        run, bundle = context["dag_run"], context["ti"].bundle_instance
        run_type = str(getattr(run.run_type, "value", run.run_type))
        logical_date = run.logical_date.isoformat() if run.logical_date else None
        origin = f"{bundle.name}@{bundle.version}" if bundle.version else bundle.name
        return Session.airflow(run.dag_id, run.run_id, run_type, logical_date, origin)

    def say_for_whom(self, checkpoint_id: int, timeline: str, token: int | str = "none") -> None:
        """Log the first line of a task: the checkpoint, timeline and token it acts for."""
        log.info("checkpoint %d, timeline %s, token %s: %s", checkpoint_id, timeline, token, self.task_id)
