"""Access control: pages follow the DAG permissions of the Airflow user.

Airflow does not protect the routes of a plugin, so each route has one of these dependencies.
"""

from __future__ import annotations

from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from fastapi import Depends

may_read_dag = requires_access_dag(method="GET")
"""Refuses a user who may not read the DAG in the URL."""

READS_DAG = Depends(may_read_dag)

may_read_docs = requires_access_view(AccessView.DOCS)
"""Refuses a user who is not logged in, or may not read Airflow's own documentation."""

READS_DOCS = Depends(may_read_docs)


def readable_dags(user: GetUserDep) -> frozenset[str]:
    """Return the ids of the DAGs that the user may read, by the same check as Airflow's own list of DAGs.

    Airflow's `ReadableDagsFilterDep` does not work here: it takes the auth manager from the state of the application
    that serves the request, and a plugin's application has none.
    """
    return frozenset(get_auth_manager().get_authorized_dag_ids(user=user, method="GET"))


ReadableDags = Annotated[frozenset[str], Depends(readable_dags)]
