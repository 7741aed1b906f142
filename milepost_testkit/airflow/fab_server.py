"""Airflow's API server with the FAB auth manager: `python -m milepost_testkit.airflow.fab_server CONFIG JOB PORT`.

Run by the Python of `.venv-fab`, with an AIRFLOW_HOME. It makes Airflow's database with the DAGs of the specs in
CONFIG, a user for each role, and one with rights on JOB only. Then it serves Airflow's own application, which has the
pages as its plugin.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

PASSWORD = "only for tests"
ONE_JOB = "one_job"
"""Role and user with rights on the DAGs of one job only, as a team's role in FAB has them."""

USERS = {"viewer": "Viewer", "user": "User", "admin": "Admin", ONE_JOB: ONE_JOB}
"""User -> role."""


def _keep_dags(config: Path) -> None:
    """Write the DAGs into the database as Airflow's DAG processor does."""
    from airflow.dag_processing.collection import update_dag_parsing_results_in_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.serialization.serialized_objects import DagSerialization, LazyDeserializedDAG
    from airflow.utils.session import create_session

    from milepost.airflow.dags.dag_factory import job_dags

    written = [LazyDeserializedDAG(data=DagSerialization.to_dict(dag)) for dag in job_dags(config).values()]
    errors: dict[tuple[str, str], str] = {}
    with create_session() as session:
        session.add(DagBundleModel(name="jobs"))
        session.flush()
        update_dag_parsing_results_in_db("jobs", None, written, errors, None, set(), session)
    assert not errors, errors


def _make_users(job: str) -> None:
    from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder

    dags = [f"DAG:{job}__epoch", f"DAG:{job}__operate"]
    rights: list[tuple[str, str]] = [(action, dag) for dag in dags for action in ("can_read", "can_edit")]
    rights += [(f"can_{action}", "DAG Runs") for action in ("read", "create", "edit")]
    rights += [("can_read", "Task Instances"), ("can_read", "XComs"), ("can_read", "Website")]
    rights += [("can_read", "HITL Detail"), ("can_edit", "HITL Detail")]
    with get_application_builder() as builder:
        security: Any = builder.sm
        security.sync_roles()
        role = security.add_role(ONE_JOB)
        for action, resource in rights:
            security.add_permission_to_role(role, security.create_permission(action, resource))
        for user, name in USERS.items():
            made = security.add_user(user, user, user, f"{user}@example.org", security.find_role(name), PASSWORD)
            assert made, f"FAB did not create the user {user}"


def main(config: str, job: str, port: str) -> None:
    import uvicorn
    from airflow.utils.db import initdb

    initdb()
    _keep_dags(Path(config))
    _make_users(job)
    uvicorn.run("airflow.api_fastapi.main:app", host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
