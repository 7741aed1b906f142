"""The Airflow operator that lands sources before the trigger of an epoch."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from milepost.acts import TAKE_OVER
from milepost.airflow.operators.base import format_facts
from milepost.airflow.operators.forms import UP_TO
from milepost.airflow.operators.tasks import EpochOperator
from milepost.errors import InvalidRequest, SourceUnreachable

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

LAND = "land_input"
LANDED = "input_landed"
"""A task without work that succeeds only after LAND did. It makes a run with a failed landing fail."""


class LandInputOperator(EpochOperator):
    """Lands the sources that are landed, before the trigger. The trigger runs even if this fails.

    It lands nothing if this run will have no epoch: it is covered, the job has ended, or another session runs an epoch.
    Nor does it if the run continues one "until caught up", which would never end otherwise.
    """

    def act(self, context: Context) -> Any:
        if UP_TO in (context["dag_run"].conf or {}):
            log.info("nothing was landed: an earlier run until caught up has landed, and this one processes the rest")
            return None
        take_over = bool(context["params"].get(TAKE_OVER.name, False))
        report = self.jobmaster().landings.land_before_epoch(self.session(context), take_over=take_over)
        if report.not_due is not None:
            log.info("nothing was landed: %s", report.not_due)
        for landed in report.landed:
            appended = {name: getattr(landed, name) for name in ("records", "rows", "bytes")}
            log.info("source %s: appended %s", landed.source, format_facts(appended))
        if not report.failed:
            return None
        problems = " ".join(failed.message for failed in report.failed)
        hint = "; ".join(dict.fromkeys(failed.hint for failed in report.failed if failed.hint))
        if any(failed.may_pass for failed in report.failed):
            raise SourceUnreachable(problems, hint=hint)
        raise InvalidRequest(problems, hint=hint)
