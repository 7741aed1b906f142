"""Access to a page follows the rights that Airflow's own user has to DAGs, asked in this one place.

A plugin's routes answer without login by themselves, so each carries one of these dependencies.
"""

from __future__ import annotations

from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from fastapi import Depends

may_read_dag = requires_access_dag(method="GET")
"""Refuses a user who may not see the DAG of the address."""

READS_DAG = Depends(may_read_dag)

may_read_docs = requires_access_view(AccessView.DOCS)
"""Refuses who is not logged in, or may not see Airflow's own help."""

READS_DOCS = Depends(may_read_docs)


def readable_dags(user: GetUserDep) -> frozenset[str]:
    """Return the ids of the DAGs that the user may see, as Airflow's own list of DAGs finds them.

    Not by Airflow's `ReadableDagsFilterDep`: it asks the state of the application that answers, and of a plugin's that
    has no auth manager.
    """
    return frozenset(get_auth_manager().get_authorized_dag_ids(user=user, method="GET"))


ReadableDags = Annotated[frozenset[str], Depends(readable_dags)]
