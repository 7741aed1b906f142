"""Access control: pages follow the DAG permissions of the Airflow user.

Airflow does not protect the routes of a plugin, so each route has one of these dependencies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import (
    AccessView,
    AssetDetails,
    DagAccessEntity,
    DagDetails,
)
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from airflow.models.dag import DagModel
from fastapi import Depends

from milepost.airflow.compat import teams_of_dags

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

may_read_dag = requires_access_dag(method="GET")
"""Refuses a user who may not read the DAG in the URL."""

READS_DAG = Depends(may_read_dag)

READS_RUN = [
    Depends(requires_access_dag(method="GET", access_entity=entity))
    for entity in (
        DagAccessEntity.RUN,
        DagAccessEntity.TASK_INSTANCE,
        DagAccessEntity.XCOM,
        DagAccessEntity.HITL_DETAIL,
    )
]
"""Refuse a user who may not read the runs of the DAG in the URL, their tasks, XComs and requests for approval."""

READS_CODE = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.CODE))
"""Refuses a user who may not read the code of the DAG in the URL: a spec is such code."""

READS_LOG = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.AUDIT_LOG))
"""Refuses a user who may not read the audit log of the DAG in the URL."""

may_read_docs = requires_access_view(AccessView.DOCS)
"""Refuses a user who is not logged in, or may not read Airflow's own documentation."""

READS_DOCS = Depends(may_read_docs)


def readable_dags(user: GetUserDep) -> frozenset[str]:
    """Return the ids of the DAGs that the user may read."""
    return Rights(user).readable_dags()


ReadableDags = Annotated[frozenset[str], Depends(readable_dags)]


@dataclass(frozen=True, slots=True)
class Rights:
    """What the user may see and do, by the same checks as Airflow's API. Pages offer nothing that it would refuse."""

    user: BaseUser
    _teams: dict[str, str | None] = field(default_factory=dict)

    def readable_dags(self) -> frozenset[str]:
        """Return the ids of the DAGs that the user may read, by the same check as Airflow's own list of DAGs.

        Airflow's `ReadableDagsFilterDep` does not work here: it takes the auth manager from the state of the
        application that serves the request, and a plugin's application has none.
        """
        return frozenset(get_auth_manager().get_authorized_dag_ids(user=self.user, method="GET"))

    def prefetch(self, dag_ids: Iterable[str]) -> None:
        """Read the teams of many DAGs in one query, so that the checks of each need none."""
        names = list(dag_ids)
        self._teams.update(dict.fromkeys(names), **teams_of_dags(names))

    def may_trigger(self, dag_id: str) -> bool:
        return self._may("POST", dag_id, DagAccessEntity.RUN)

    def may_approve(self, dag_id: str) -> bool:
        """Return whether the user may answer requests for approval in the runs of a DAG."""
        return self._may("PUT", dag_id, DagAccessEntity.HITL_DETAIL)

    def may_read_runs(self, dag_id: str) -> bool:
        return self._may("GET", dag_id, DagAccessEntity.RUN) and self._may("GET", dag_id, DagAccessEntity.TASK_INSTANCE)

    def may_read_requests(self, dag_id: str) -> bool:
        return self._may("GET", dag_id, DagAccessEntity.HITL_DETAIL)

    def may_read_log(self, dag_id: str) -> bool:
        return self._may("GET", dag_id, DagAccessEntity.AUDIT_LOG)

    def may_read_code(self, dag_id: str) -> bool:
        return self._may("GET", dag_id, DagAccessEntity.CODE)

    def may_read_asset(self, asset_id: int) -> bool:
        details = AssetDetails(id=str(asset_id))
        return get_auth_manager().is_authorized_asset(method="GET", details=details, user=self.user)

    def may_pause(self, dag_id: str) -> bool:
        return self._may("PUT", dag_id)

    def _may(self, method: ResourceMethod, dag_id: str, entity: DagAccessEntity | None = None) -> bool:
        if dag_id not in self._teams:
            self._teams[dag_id] = DagModel.get_team_name(dag_id)
        details = DagDetails(id=dag_id, team_name=self._teams[dag_id])
        return get_auth_manager().is_authorized_dag(
            method=method, access_entity=entity, details=details, user=self.user
        )


def rights_of(user: GetUserDep) -> Rights:
    """Return the rights of the user who is logged in."""
    return Rights(user)


UserRights = Annotated[Rights, Depends(rights_of)]
