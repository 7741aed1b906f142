"""Create the DAG `<job>__operate`: all acts on a job, as one form with plan and approval."""

from __future__ import annotations

from airflow.sdk import DAG, AssetAlias, TriggerRule

from milepost.acts import ACTS
from milepost.airflow.dags.dag_settings import form_dag
from milepost.airflow.dags.spec_docs import spec_as_docs
from milepost.airflow.operate.form import operate_form
from milepost.airflow.operate.tasks import ACT, APPROVAL, PLAN, RECONCILE, ActOperator, PlanOperator, ReconcileOperator
from milepost.airflow.operators.approval import PlanApprovalOperator
from milepost.airflow.operators.dag_ids import operate_dag_id
from milepost.airflow.provider.asset_uris import sink_assets
from milepost.jobspec.load import LoadedJob


def operate_dag(job: LoadedJob) -> DAG:
    """Return the DAG `<job>__operate`."""
    name, path = job.spec.name, str(job.path)
    acts = "\n".join(f"* **{act.title}** (`{act.name}`)" for act in ACTS.values())
    with form_dag(
        job,
        operate_dag_id(name),
        f"Operations on {name}: rollback, savepoint, backfill, resume, cancel, start, and others",
        _DOC.format(name=name, acts=acts),
        operate_form(job),
    ) as dag:
        planned = PlanOperator(task_id=PLAN, spec_path=path, **spec_as_docs(job))
        approved = PlanApprovalOperator(task_id=APPROVAL, plan_task=PLAN)
        acted = ActOperator(task_id=ACT, spec_path=path, trigger_rule=TriggerRule.NONE_FAILED)
        reconciled = ReconcileOperator(
            task_id=RECONCILE,
            spec_path=path,
            sink_assets=sink_assets(job),
            outlets=[AssetAlias(f"milepost.{name}")],
        )
        planned >> approved >> acted >> reconciled
    return dag


_DOC = """### {name}: operate

Choose **what to do**, fill in only the section of that act, and trigger. `plan` shows what would change. `approve`
shows the plan under *Required Actions* and waits up to one day for a person. `act` carries out the approved plan, or
refuses if the plan no longer holds. `reconcile` updates every table. A rejected, refused or *only planned* run changes
nothing.

{acts}

A rollback deletes nothing, so you can roll it back. Creating a savepoint, why, verify and fsck change nothing that
exists, and need no approval. The next run of `{name}__epoch` continues from the resulting head. Airflow's own backfill
of `{name}__epoch` is different: it runs epochs for past dates, which a later epoch already covers.
"""
