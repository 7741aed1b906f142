"""The chain of tasks by which a person switches the live timeline: plan, approve, act, see every table follow."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias, TriggerRule

from milepost.airflow.dags.dag_settings import sink_assets
from milepost.airflow.operators.approval import PlanApprovalOperator
from milepost.airflow.operators.job_specs import spec_as_docs
from milepost.airflow.operators.planned import PlannedOperator, PlanOperator, ShownPlan
from milepost.protocol.codec.records import from_json
from milepost.spec.load.load import LoadedJob

if TYPE_CHECKING:
    from airflow.sdk import Context

    from milepost.jobmaster.jobmaster import JobMaster, Session

log = logging.getLogger(__name__)

APPROVAL = "approve"
RECONCILE = "reconcile"

UNCHANGED = "nothing_to_roll_back"

_RECENT = 200
"""Manifest entries among which a retried task looks for what its first try did."""


@dataclass(frozen=True, slots=True)
class Switched:
    """What the task that switches leaves for `reconcile`.

    Attributes:
        checkpoint_id: head of the timeline that is live now. discarded: checkpoints that are not live any more.
    """

    outcome: str
    checkpoint_id: int
    timeline: str
    discarded: tuple[int, ...] = ()


def add_switch(job: LoadedJob, plan: tuple[str, type[PlanOperator]], act: tuple[str, type[PlannedOperator]]) -> None:
    """Add the four tasks to the DAG that is being made.

    Args:
        plan, act: id and Airflow operator of the task that makes the plan, and of the one that carries it out and
            leaves a `Switched`.
    """
    path = str(job.path)
    plan_task, plan_operator = plan
    act_task, act_operator = act
    following = [act_task, RECONCILE]
    planned = plan_operator(
        task_id=plan_task, spec_path=path, approval=APPROVAL, following=following, **spec_as_docs(job)
    )
    approved = PlanApprovalOperator(task_id=APPROVAL, plan_task=plan_task)
    carried_out = {"spec_path": path, "plan_task": plan_task, "approval": APPROVAL}
    acted = act_operator(task_id=act_task, trigger_rule=TriggerRule.NONE_FAILED, **carried_out)
    reconciled = ReconcileOperator(
        task_id=RECONCILE,
        switch_task=act_task,
        sink_assets=sink_assets(job),
        outlets=[AssetAlias(f"milepost.{job.spec.name}")],
        **carried_out,
    )
    planned >> approved >> acted >> reconciled


def switched_before(context: Context, master: JobMaster, session: Session, plan: ShownPlan) -> Switched | None:
    """Return the switch by which an earlier try of this task carried the plan out; None when none did.

    Without it a try whose answer was lost would be refused as outdated, or do the work once more.
    """
    if context["ti"].try_number == 1:
        return None
    for entry in master.history(limit=_RECENT):
        if entry["version"] <= plan.manifest_version:
            return None
        if entry["event"] == "TimelineSwitched" and entry["session_id"] == session.session_id:
            return Switched(entry["kind"], entry["checkpoint_id"], entry["timeline"], tuple(entry["discarded"]))
    return None


class ReconcileOperator(PlannedOperator):
    """Sees that every sink has followed the switch, and emits the asset event of each table that it changed.

    The event is that of `notify_complete`; its `rows` are those of the whole table, None where the plan cannot know.

    Args:
        switch_task: the task that switched. sink_assets: asset URI of every sink of the job.
    """

    def __init__(self, *, switch_task: str, sink_assets: dict[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.switch_task = switch_task
        self.sink_assets = sink_assets

    def act(self, context: Context) -> None:
        plan = self.planned(context)
        left = context["ti"].xcom_pull(task_ids=self.switch_task)
        done = from_json(Switched, left, f"switch that {self.switch_task} left", hint="trigger a new run")
        checkpoint_id = done.checkpoint_id
        self.say_for_whom(checkpoint_id, done.timeline)
        master = self.jobmaster()
        master.finish_reconciliation(self.session(context))
        if done.outcome == UNCHANGED:
            log.info("no table had to follow")
            return
        watermark = master.show(checkpoint_id).watermark if checkpoint_id else None
        about = {"checkpoint_id": checkpoint_id, "timeline": done.timeline, "watermark": watermark}
        for sink, rows in sorted(plan.rows.items()):
            log.info("sink %s stands at checkpoint %d of timeline %s", sink, checkpoint_id, done.timeline)
            for alias in self.outlets:
                if isinstance(alias, AssetAlias):
                    context["outlet_events"][alias].add(Asset(self.sink_assets[sink]), extra=about | {"rows": rows})
