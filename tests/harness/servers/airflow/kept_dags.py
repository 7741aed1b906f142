"""DAGs as Airflow keeps them: written as it writes them, without its database."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from airflow.sdk import DAG

from milepost.spec.load.load import LoadedJob


def keep_dags(patch: pytest.MonkeyPatch, *dags: DAG) -> None:
    """Let Airflow's server know these DAGs, and no others."""
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization.serialized_objects import DagSerialization

    kept = {dag.dag_id: DagSerialization.from_dict(DagSerialization.to_dict(dag)) for dag in dags}
    patch.setattr(SerializedDagModel, "get_dag", kept.get)

    from milepost.airflow.page.jobs import dag_jobs

    def specs_of_dags(readable: Collection[str]) -> dict[str, dag_jobs.DagSpecs]:
        return {dag_id: dag_jobs.specs_of(dag) for dag_id, dag in kept.items() if dag_id in readable}

    patch.setattr(dag_jobs, "specs_of_dags", specs_of_dags)


def jobs_on_the_page(dag_id: str) -> dict[str, LoadedJob]:
    """The jobs that the Checkpoints page finds of a DAG; with it, Airflow's server is imported."""
    from milepost.airflow.page.jobs.dag_jobs import jobs_of_dag

    return jobs_of_dag(dag_id)
