"""Read Airflow Connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.errors import EnvironmentUnusable
from milepost.jobspec.job import Connection, connection_of

if TYPE_CHECKING:
    from airflow.sdk import Connection as AirflowConnection


def airflow_connection(conn_id: str) -> Connection:
    """Return an Airflow Connection. Airflow then masks its secrets in the logs of this process.

    Raises: EnvironmentUnusable: the Connection does not exist, or cannot be read.
    """
    from airflow.sdk import Connection as AirflowConnection

    from milepost.airflow.compat import AirflowNotFoundException

    try:
        return from_airflow(AirflowConnection.get(conn_id))
    except AirflowNotFoundException:
        raise _unusable(conn_id, "does not exist in Airflow") from None


async def async_airflow_connection(conn_id: str) -> Connection:
    """Do the same as `airflow_connection` without blocking the event loop of the triggerer."""
    from airflow.sdk import Connection as AirflowConnection

    from milepost.airflow.compat import AirflowNotFoundException

    try:
        return from_airflow(await AirflowConnection.async_get(conn_id))
    except AirflowNotFoundException:
        raise _unusable(conn_id, "does not exist in Airflow") from None


def from_airflow(connection: AirflowConnection) -> Connection:
    """Convert an Airflow Connection. Raises EnvironmentUnusable: it cannot be read."""
    names = ("conn_type", "host", "port", "schema", "login", "password", "extra")
    try:
        return connection_of(connection.conn_id, {name: getattr(connection, name) for name in names})
    except ValueError as problem:  # the message contains no values of the Connection
        raise _unusable(connection.conn_id, f"cannot be read: {problem}") from None


def _unusable(conn_id: str, problem: str) -> EnvironmentUnusable:
    return EnvironmentUnusable(
        f"Connection {conn_id} {problem}. Nothing was run or changed.",
        hint=f"add or correct {conn_id} under Admin, Connections, or in Airflow's secrets backend",
        conn_id=conn_id,
    )
