"""The jobs of DAGs, read from what Airflow keeps of them, where a task documents its spec."""

from __future__ import annotations

import pathlib
from dataclasses import replace

from airflow.models.serialized_dag import SerializedDagModel

from milepost.airflow.connections import airflow_connection
from milepost.protocol.records.errors import NotFound
from milepost.spec.load.load import LoadedJob, from_text


def jobs_of_dag(dag_id: str) -> dict[str, LoadedJob]:
    """Return the jobs that have tasks in a DAG as Airflow keeps it, in order of their names.

    Raises:
        NotFound: Airflow knows no such DAG, or no valid spec has a task in it.
        InvalidRequest: a spec of it is not valid for the version of Milepost that this server has.
    """
    dag = SerializedDagModel.get_dag(dag_id)
    plain = [task for task in dag.tasks if not task.is_mapped] if dag is not None else []
    documented = [task for task in plain if task._task_module.startswith("milepost.") and task.doc_yaml]
    specs = [from_text(task.doc_yaml, pathlib.Path(task.doc)) for task in documented]
    loaded = [replace(job, find_connection=airflow_connection) for job in specs]
    if not loaded:
        raise NotFound(
            f"DAG {dag_id} is not a DAG of a job: no task of it documents a job's spec.",
            hint="If it should be one, look at the DAG's own page for what is wrong with its spec.",
        )
    return {job.spec.name: job for job in sorted(loaded, key=lambda job: job.spec.name)}
