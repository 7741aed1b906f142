"""The tasks of `<job>__operate`: plan, act and reconcile, with an optional approval after plan.

A person approves the digest of a plan, and only that plan is carried out. The act is refused if the state that the plan
was made from has changed.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from milepost.acts import Act, ActContext, ActResult, ShownPlan
from milepost.airflow.compat import AirflowFailException, DownstreamTasksSkipped
from milepost.airflow.operate.form import ActRequest, parse_form
from milepost.airflow.operators.base import RETURN_VALUE, JobOperator
from milepost.airflow.operators.shown_plan import (
    PLAN_DIGEST,
    digest_of,
    pull_plan,
    require_digest,
    responder_name,
)
from milepost.airflow.task_output.outcome import Reaction, error_text
from milepost.codec import to_json
from milepost.errors import CommitConflict
from milepost.protocol.records import Decision

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

PLAN, APPROVAL, ACT, RECONCILE = "plan", "approve", "act", "reconcile"


class PlanOperator(JobOperator):
    """Plans the act of the form and logs the plan. Changes nothing."""

    if_busy = Reaction.FAIL

    def act(self, context: Context) -> Any:
        master = self.jobmaster()
        request = parse_form(context["params"], master.job)
        plan = request.act.plan(master, request.form).shown
        self.log_identity(plan.checkpoint_id, plan.timeline, plan.token)
        _log(plan.subject, *plan.text)
        log.info("plan digest %s", digest_of(plan))
        skipped = self._skipped(request, plan)
        if skipped:
            # Skipping by exception returns no value.
            context["ti"].xcom_push(key=RETURN_VALUE, value=to_json(plan))
            raise DownstreamTasksSkipped(tasks=skipped)
        return to_json(plan)

    def _skipped(self, request: ActRequest, plan: ShownPlan) -> list[str]:
        """Return the tasks that must not run."""
        if request.dry_run:
            log.info("only planned: nothing was changed")
        elif plan.idle:
            log.info("there is nothing to do: nothing was changed")
        else:
            return [] if request.approve else [APPROVAL]
        return [APPROVAL, ACT, RECONCILE]


class PlannedOperator(JobOperator):
    """Base of the tasks that carry out the plan of the run."""

    if_busy = Reaction.FAIL

    def planned(self, context: Context, request: ActRequest) -> ShownPlan:
        """Return the plan of this run.

        Airflow runs a task that the plan has skipped if a user clears it, so a dry run is refused here too.

        Raises:
            AirflowFailException: the plan is not the approved one, or this is a dry run.
        """
        if request.dry_run:
            raise AirflowFailException("this run only plans. Nothing was changed. Trigger a new run to carry it out.")
        plan = pull_plan(context["ti"], PLAN)
        if request.approve:
            answer: dict[str, Any] = context["ti"].xcom_pull(task_ids=APPROVAL) or {}
            require_digest(plan, answer.get(PLAN_DIGEST))
        if plan.what != request.act.name or plan.idle:
            raise AirflowFailException(
                f"the plan in this run's XCom is for {plan.what}{' and has nothing to do' if plan.idle else ''}, but "
                f"the form is for {request.act.name}. Nothing was changed. Trigger a new run, and find out who edited "
                "XCom."
            )
        return plan


class ActOperator(PlannedOperator):
    """Carries out the plan, if it still holds. Skips `reconcile` if no table changes."""

    def act(self, context: Context) -> Any:
        master, ti = self.jobmaster(), context["ti"]
        request = parse_form(context["params"], master.job)
        plan = self.planned(context, request)
        self.log_identity(plan.checkpoint_id, plan.timeline, plan.token)
        act_context = ActContext(
            master=master,
            session=self.session(context),
            form=request.form,
            decided_by=self.decided_by(context),
            approved=plan,
            retried=ti.try_number > 1,
            progress=_log,
        )
        try:
            result = carried_out(request.act, act_context)
        except CommitConflict as error:
            raise AirflowFailException(
                f"the plan no longer holds. Trigger a new run to plan again: {error_text(error)}"
            ) from error
        log.info("%s: %s", request.act.name, result.outcome)
        _log(*result.text)
        if not result.follows:
            ti.xcom_push(key=RETURN_VALUE, value=to_json(result))
            raise DownstreamTasksSkipped(tasks=[RECONCILE])
        return to_json(result)

    def decided_by(self, context: Context) -> Decision:
        """Return who triggered and approved the act, for the history."""
        answer: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=APPROVAL)
        approved_by = responder_name(answer) if answer else None
        return Decision(replace(self.session(context).actor, approved_by=approved_by))

    def on_kill(self) -> None:
        """Raise when Airflow stops the task, so that the stack unwinds and a runner stops its Spark session."""
        from milepost.airflow.compat import AirflowTaskTerminated

        raise AirflowTaskTerminated(f"{self.task_id} was stopped; another run with the same form continues it")


class ReconcileOperator(PlannedOperator):
    """Finishes the reconciliation of every sink, and emits an asset event for each table that changed.

    The event is the same as that of `notify_complete`. Its `rows` count the whole table, or are None if the plan cannot
    know them.

    Args:
        sink_assets: asset URI of every sink of the job.
    """

    def __init__(self, *, sink_assets: dict[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sink_assets = sink_assets

    def act(self, context: Context) -> None:
        master = self.jobmaster()
        plan = self.planned(context, parse_form(context["params"], master.job))
        value = context["ti"].xcom_pull(task_ids=ACT)
        result = ActResult.from_xcom(value, f"XCom of {ACT}")
        checkpoint_id = result.checkpoint_id
        self.log_identity(checkpoint_id, result.timeline)
        master.rollbacks.finish_reconciliation(self.session(context))
        watermark = master.reports.show(checkpoint_id).watermark if checkpoint_id else None
        about = {"checkpoint_id": checkpoint_id, "timeline": result.timeline, "watermark": watermark}
        for sink, rows in sorted(plan.rows.items()):
            log.info("sink %s is at checkpoint %d of timeline %s", sink, checkpoint_id, result.timeline)
            for alias in self.outlets:
                if isinstance(alias, AssetAlias):
                    context["outlet_events"][alias].add(Asset(self.sink_assets[sink]), extra=about | {"rows": rows})


def carried_out(act: Act[Any], context: ActContext) -> ActResult:
    """Carry out an approved plan, unless an earlier try did so. Raises PlanOutdated: it no longer holds."""
    earlier = act.recheck(context)
    if earlier is not None:
        return earlier
    done = act.carry_out(context)
    _log(*act.details(done))
    failure = act.failure(done)
    if failure is not None:
        raise failure
    return act.result(context, done)


def _log(*lines: str) -> None:
    for line in lines:
        log.info("%s", line)
