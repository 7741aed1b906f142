"""The Airflow operators that land sources: before the trigger of an epoch, or on a schedule of their own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from milepost.acts import TAKE_OVER
from milepost.airflow.operators.base import JobOperator, format_facts
from milepost.airflow.operators.forms import UP_TO
from milepost.airflow.operators.tasks import EpochOperator
from milepost.errors import InvalidRequest, SourceUnreachable
from milepost.language.times import parse_duration

if TYPE_CHECKING:
    from airflow.sdk import Context

    from milepost.jobmaster import LandingReport

log = logging.getLogger(__name__)

LAND = "land_input"
LANDED = "input_landed"
"""A task without work that succeeds only after LAND did. It makes a run with a failed landing fail."""


def _log_report(report: LandingReport) -> dict[str, Any]:
    """Log what was landed, and return it. Raises the errors of the sources that failed, as one."""
    if report.not_due is not None:
        log.info("nothing was landed: %s", report.not_due)
    for landed in report.landed:
        appended = {name: getattr(landed, name) for name in ("records", "rows", "bytes")}
        log.info("source %s: appended %s", landed.source, format_facts(appended))
    if not report.failed:
        return {"rows": sum(landed.rows for landed in report.landed), "not_due": report.not_due}
    problems = " ".join(failed.message for failed in report.failed)
    hint = "; ".join(dict.fromkeys(failed.hint for failed in report.failed if failed.hint))
    if any(failed.may_pass for failed in report.failed):
        raise SourceUnreachable(problems, hint=hint)
    raise InvalidRequest(problems, hint=hint)


class LandOnScheduleOperator(JobOperator):
    """Lands the sources that have the schedule of its DAG.

    Args:
        every: how often, as in the spec.
    """

    def __init__(self, *, every: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.every = every

    def act(self, context: Context) -> Any:
        master = self.jobmaster()
        sources = master.job.spec.land_schedules.get(parse_duration(self.every), ())
        return _log_report(master.landings.land_scheduled(sources))


class LandInputOperator(EpochOperator):
    """Lands the sources without a schedule of their own, before the trigger. The trigger runs even if this fails.

    It lands nothing if this run will have no epoch: it is covered, the job has ended, or another session runs an epoch.
    Nor does it if the run continues one "until caught up", which would never end otherwise.
    """

    def act(self, context: Context) -> Any:
        if UP_TO in (context["dag_run"].conf or {}):
            log.info("nothing was landed: an earlier run until caught up has landed, and this one processes the rest")
            return None
        take_over = bool(context["params"].get(TAKE_OVER.name, False))
        master = self.jobmaster()
        sources = master.job.spec.landed_by_epochs
        return _log_report(master.landings.land_before_epoch(self.session(context), sources, take_over=take_over))
