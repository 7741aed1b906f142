"""DAGs as Airflow keeps them: written as it writes them, without its database."""

from __future__ import annotations

import pytest
from airflow.models.serialized_dag import SerializedDagModel
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization


def keep_dags(patch: pytest.MonkeyPatch, *dags: DAG) -> None:
    """Let Airflow's server know these DAGs, and no others."""
    kept = {dag.dag_id: DagSerialization.from_dict(DagSerialization.to_dict(dag)) for dag in dags}
    patch.setattr(SerializedDagModel, "get_dag", kept.get)
