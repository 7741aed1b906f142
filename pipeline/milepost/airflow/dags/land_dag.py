"""Create a DAG that lands the sources of a job that have one schedule of their own: `<job>__land_<every>`.

Sources with the same `land.every` share a DAG and a task. A source that fails holds none of the others back.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from milepost.airflow.compat import DeltaTriggerTimetable
from milepost.airflow.dags.dag_settings import START, dag_tags, on_failure, task_defaults
from milepost.airflow.dags.spec_docs import spec_as_docs
from milepost.airflow.operators.dag_ids import epoch_dag_id, land_dag_id
from milepost.airflow.operators.land_input import LAND, LandOnScheduleOperator
from milepost.jobspec.load import LoadedJob
from milepost.language.times import format_duration


def land_dag(job: LoadedJob, every: timedelta) -> DAG:
    """Return the DAG that lands the sources with this schedule."""
    spec, interval = job.spec, format_duration(every)
    sources = ", ".join(f"`{name}`" for name in spec.land_schedules[every])
    with DAG(
        dag_id=land_dag_id(spec.name, every),
        description=f"Land sources of {spec.name} every {interval}",
        doc_md=_DOC.format(name=spec.name, every=interval, sources=sources, epoch=epoch_dag_id(spec.name)),
        schedule=DeltaTriggerTimetable(every),
        start_date=START,
        catchup=False,
        max_active_runs=1,
        tags=dag_tags(spec),
        on_failure_callback=on_failure(spec),
        default_args=task_defaults(spec),
        render_template_as_native_obj=False,
        auto_register=False,  # `load_jobs` registers complete DAGs
    ) as dag:
        LandOnScheduleOperator(task_id=LAND, spec_path=str(job.path), every=interval, **spec_as_docs(job))
    return dag


_DOC = """### {name}: land every {every}

Appends the newest rows of {sources} to the logs in the job's storage. [{epoch}](/dags/{epoch}) processes them, on a
schedule of its own.

It continues while the job is FAILED, so that data is landed before the external system deletes it. It lands nothing
before the job's first run, after the job has ended, or after its storage was deleted.
"""
