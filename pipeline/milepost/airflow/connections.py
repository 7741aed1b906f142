"""Airflow's Connections, as its secrets backends have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milepost.protocol.records.errors import EnvironmentUnusable
from milepost.spec.job.connections import Connection, connection_of

if TYPE_CHECKING:
    from airflow.sdk import Connection as AirflowConnection


def connection_fields(connection: AirflowConnection) -> dict[str, Any]:
    """Return what a Connection of Airflow holds, by the names of its fields."""
    names = ("conn_type", "host", "port", "schema", "login", "password", "extra")
    return {name: getattr(connection, name) for name in names}


def airflow_connection(conn_id: str) -> Connection:
    """Return a Connection of Airflow, which from then on masks its secrets in the logs of this process.

    Raises: EnvironmentUnusable: Airflow has none of this id, or what it has cannot be read.
    """
    from airflow.sdk import Connection as AirflowConnection
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return connection_of(conn_id, connection_fields(AirflowConnection.get(conn_id)))
    except (AirflowNotFoundException, ValueError) as error:
        problem = f"cannot be read: {error}" if isinstance(error, ValueError) else "is not in Airflow"
        raise EnvironmentUnusable(
            f"Connection {conn_id} {problem}. Nothing was run or changed.",
            hint=f"add or correct {conn_id} under Admin, Connections, or in Airflow's secrets backend",
            conn_id=conn_id,
        ) from None
