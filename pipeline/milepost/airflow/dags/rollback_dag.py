"""The DAG `<job>__rollback`: plan, have the plan approved, go back, and see that every table has followed.

What is approved is what is done: the rollback goes to the checkpoint of the plan, and is refused when the head is
another one by then.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param
from airflow.sdk.exceptions import AirflowFailException

from milepost.airflow.dags.dag_settings import form_dag
from milepost.airflow.dags.switched import Switched, add_switch, switched_before
from milepost.airflow.operators import forms
from milepost.airflow.operators.job_specs import rollback_dag_id
from milepost.airflow.operators.planned import PlannedOperator, PlanOperator, ShownPlan
from milepost.protocol.codec.records import to_json
from milepost.protocol.records.errors import CommitConflict
from milepost.protocol.records.ids import checkpoint_name
from milepost.spec.load.load import LoadedJob

if TYPE_CHECKING:
    from airflow.sdk import Context

    from milepost.jobmaster.jobmaster import JobMaster

log = logging.getLogger(__name__)

PLAN = "plan_rollback"
ROLLBACK = "rollback"

TO = "to"


def rollback_dag(job: LoadedJob) -> DAG:
    """Return the DAG `<job>__rollback`."""
    name = job.spec.name
    with form_dag(
        job,
        rollback_dag_id(name),
        f"Return {name} to a checkpoint: state, source positions, rows in flight and every table",
        _DOC.format(name=name),
        _form(),
    ) as dag:
        add_switch(job, (PLAN, PlanRollbackOperator), (ROLLBACK, RollbackOperator))
    return dag


class PlanRollbackOperator(PlanOperator):
    """Says what a rollback to the form's checkpoint or time would do. Changes nothing."""

    def plan(self, master: JobMaster, form: dict[str, Any]) -> ShownPlan:
        plan = master.plan_rollback(form[TO])
        target = plan.target.checkpoint_id
        return ShownPlan(
            checkpoint_id=target,
            timeline=plan.timeline,
            token=f"none (planned at manifest version {plan.manifest_version})",
            subject=f"{plan.job}: roll back to {checkpoint_name(target)}",
            text=plan.text,
            manifest_version=plan.manifest_version,
            approved=to_json(plan.approved),
            rows={name: getattr(sink, "rows_then", None) for name, sink in plan.sinks.items()},
        )


class RollbackOperator(PlannedOperator):
    """Goes back to the checkpoint of the plan, if the head is still the plan's."""

    def act(self, context: Context) -> Any:
        from milepost.jobmaster.jobmaster import ApprovedRollback

        plan = self.planned(context)
        checkpoint_id = plan.checkpoint_id
        self.say_for_whom(checkpoint_id, plan.timeline, plan.token)
        master, session = self.jobmaster(), self.session(context)
        done = switched_before(context, master, session, plan)
        if done is None:
            form = context["params"]
            asked = master.rollback_target(form[TO])
            if asked != checkpoint_id:
                raise AirflowFailException(
                    f"the plan does not hold any more, plan again by a new run: back to {form[TO]} is "
                    f"{checkpoint_name(asked)} now, and {checkpoint_name(checkpoint_id)} in the plan. Nothing was "
                    "changed."
                )
            try:
                result = master.rollback(
                    session,
                    checkpoint_id,
                    take_over=bool(form[forms.TAKE_OVER]),
                    detail=self.decided_by(context),
                    approved=plan.approval(ApprovedRollback),
                )
            except CommitConflict as moved:
                raise AirflowFailException(
                    f"the plan does not hold any more, plan again by a new run: {moved.message}"
                ) from moved
            done = Switched(result.outcome, result.checkpoint_id, result.timeline, result.discarded)
        log.info(
            "%s: checkpoint %s is the head of timeline %s; discarded: %s",
            done.outcome,
            checkpoint_id,
            done.timeline,
            ", ".join(map(str, done.discarded)) or "none",
        )
        return to_json(done)


def _form() -> dict[str, Param]:
    return {
        TO: forms.text(
            "Back to",
            "A checkpoint id (0: the empty state), or a time: the newest checkpoint triggered at or before it. "
            f"As in 41, {forms.MOMENT_EXAMPLES}.",
            forms.ID_OR_MOMENT_PATTERN,
        ),
        forms.DRY_RUN: forms.dry_run(),
        forms.APPROVE: forms.approve("roll back"),
        forms.TAKE_OVER: forms.take_over(section=forms.HOW),
    }


_DOC = """### {name}: rollback

Returns state, source positions, rows in flight and every table to one checkpoint, on a new timeline. Nothing is
deleted: what is discarded stays until retention takes it, so a rollback can be rolled back.

`plan_rollback` says what would happen; `approve` shows that under *Required Actions* and waits for a person;
`rollback` does what was approved, or refuses when the head has moved meanwhile; `reconcile` sees that every table has
followed. A rejected or refused run has changed nothing. The next run of `{name}__epoch` continues from there.
"""
