"""Base class of Milepost's Airflow operators: job master, session and error translation."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from milepost.airflow.connections import airflow_connection
from milepost.airflow.spec_cache import parsed_spec
from milepost.airflow.task_output.openlineage import lineage_settings
from milepost.airflow.task_output.outcome import Reaction, translate_errors
from milepost.airflow.task_output.task_log import keep_task_log_short
from milepost.airflow.task_output.task_secrets import mask_secrets
from milepost.airflow.task_output.telemetry import telemetry_of_airflow

if TYPE_CHECKING:
    from airflow.sdk import Context

    from milepost.jobmaster import JobMaster, Session

log = logging.getLogger(__name__)

RETURN_VALUE = "return_value"
"""XCom key of a task's result."""

TRIGGER = "trigger_checkpoint"
"""The first task of an epoch. Its XCom has the checkpoint that the other tasks work on."""


def format_facts(facts: Mapping[str, Any]) -> str:
    """Format facts as one log line, without those that are None.

    {"rows_in": 1200, "lag_ms": None, "sinks": ["a", "b"]} -> "rows in 1,200, sinks a, b"
    """
    items = facts.items()
    return ", ".join(f"{name.replace('_', ' ')} {_format_value(value)}" for name, value in items if value is not None)


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({format_facts(value)})" if value else "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_format_value, value)) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


class JobOperator(BaseOperator):
    """Base of the Airflow operators of a job.

    Args:
        spec_path: the job's spec file. Every task reads it again, so that an edit takes effect with the next task.
    """

    ui_color = "#e8eef7"
    if_busy = Reaction.SKIP
    """Reaction if another session holds the lease. A scheduled epoch skips; an act that a person triggered fails."""

    def __init__(self, *, spec_path: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec_path = spec_path

    def execute(self, context: Context) -> Any:
        """Run `act`, with every error translated to a retry, skip or failure (`outcome.py`)."""
        keep_task_log_short()
        mask_secrets(self.spec_path)  # user code or an error may log them
        with translate_errors(context["ti"], log, if_busy=self.if_busy):
            return self.act(context)

    def act(self, context: Context) -> Any:
        """Do the task's work. Returns its XCom for later tasks, never rows."""
        raise TypeError(f"{type(self).__name__} must define act()")

    def jobmaster(self) -> JobMaster:
        from milepost.jobmaster import JobMaster

        job = replace(parsed_spec(Path(self.spec_path)), find_connection=airflow_connection)
        return JobMaster(job, lineage_settings, telemetry_of_airflow)

    def sibling_id(self, task_id: str) -> str:
        """Return the full id of another task of the same job: in task group `g`, `validate` is `g.validate`."""
        group, dot, _ = self.task_id.rpartition(".")
        return f"{group}{dot}{task_id}"

    def session(self, context: Context) -> Session:
        """Return the session of this DAG run. All its tasks and tries have the same session (I3)."""
        from milepost.jobmaster import Session

        run, bundle = context["dag_run"], context["ti"].bundle_instance
        run_type = str(getattr(run.run_type, "value", run.run_type))
        logical_date = run.logical_date.isoformat() if run.logical_date else None
        origin = f"{bundle.name}@{bundle.version}" if bundle.version else bundle.name
        person = getattr(run, "triggering_user_name", None) or ""
        return Session.airflow(run.dag_id, run.run_id, run_type, logical_date, origin, person)

    def log_identity(self, checkpoint_id: int, timeline: str, token: int | str = "none") -> None:
        """Log the first line of a task: the checkpoint, timeline and token it works on."""
        log.info("checkpoint %d, timeline %s, token %s: %s", checkpoint_id, timeline, token, self.task_id)
