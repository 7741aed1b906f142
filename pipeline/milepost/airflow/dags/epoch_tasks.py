"""Create the tasks of one epoch in the current DAG or task group."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import AssetAlias, BaseOperator, TriggerRule

from milepost.airflow.dags.spec_docs import spec_as_docs
from milepost.airflow.operators import land_input, tasks
from milepost.airflow.provider.asset_uris import sink_assets
from milepost.jobspec.load import LoadedJob

if TYPE_CHECKING:
    from airflow.sdk.definitions.mappedoperator import MappedOperator


def epoch_tasks(job: LoadedJob) -> BaseOperator:
    """Add the tasks of an epoch. Returns `subsume`, which downstream tasks must wait for.

    `abort_checkpoint` runs if a task before the commit point has failed.
    """
    spec, path = job.spec, str(job.path)
    trigger = tasks.TriggerCheckpointOperator(task_id=tasks.TRIGGER, spec_path=path, **spec_as_docs(job))
    run = tasks.RunEpochOperator(
        task_id=tasks.RUN, spec_path=path, execution_timeout=execution_timeout(spec.checkpointing.timeout)
    )
    validate = tasks.ValidateOperator(task_id=tasks.VALIDATE, spec_path=path)
    complete = tasks.CompleteCheckpointOperator(task_id=tasks.COMPLETE, spec_path=path)
    notify = _notify(job, complete)
    subsume = tasks.SubsumeOperator(task_id=tasks.SUBSUME, spec_path=path, trigger_rule=TriggerRule.NONE_FAILED)
    abort = tasks.AbortCheckpointOperator(task_id=tasks.ABORT, spec_path=path, trigger_rule=TriggerRule.ONE_FAILED)
    if spec.landed_by_epochs:
        _land_before(trigger, path)
    trigger >> run >> validate >> complete >> notify >> subsume
    [trigger, run, validate, complete] >> abort
    return subsume


def _land_before(trigger: BaseOperator, spec_path: str) -> None:
    """Add `land_input` upstream of the trigger, which also runs if landing has failed.

    Airflow judges a run by its last tasks, so `input_landed`, which needs no worker, makes a run with a failed landing
    fail. ONE_DONE is fulfilled by success and failure only: if tasks before a task group do not succeed, the trigger
    is skipped together with `land_input`.
    """
    land = land_input.LandInputOperator(task_id=land_input.LAND, spec_path=spec_path)
    trigger.trigger_rule = TriggerRule.ONE_DONE
    land >> [trigger, EmptyOperator(task_id=land_input.LANDED)]


def _notify(job: LoadedJob, complete: BaseOperator) -> BaseOperator | MappedOperator:
    """Return the publishing task: mapped over the sinks if there are several, so that they publish in parallel.

    A job with one sink has a plain task, because expanding a mapped task costs another pass of the scheduler.
    """
    settings: dict[str, Any] = {
        "task_id": tasks.NOTIFY,
        "spec_path": str(job.path),
        "sink_assets": sink_assets(job),
        "outlets": [AssetAlias(f"milepost.{job.spec.name}")],
    }
    if len(job.spec.sinks) < 2:
        return tasks.NotifyCompleteOperator(**settings)
    named = "{{ task.committed['sink'] }}"
    each = tasks.NotifyCompleteOperator.partial(**settings, map_index_template=named)
    return each.expand(committed=complete.output)


def execution_timeout(checkpoint_timeout: timedelta) -> timedelta:
    """Return the timeout of `run_epoch`: 90 % of the checkpoint's, so that it ends before any sweep (I10)."""
    return timedelta(seconds=max(1, math.floor(checkpoint_timeout.total_seconds() * 0.9)))
