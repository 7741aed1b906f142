"""Airflow's Connections, as its secrets backends have them."""

from __future__ import annotations

from milepost.protocol.records.errors import EnvironmentUnusable
from milepost.spec.job.connections import Connection, connection_of

_FIELDS = ("conn_type", "host", "port", "schema", "login", "password", "extra")


def airflow_connection(conn_id: str) -> Connection:
    """Return a Connection of Airflow, which from then on masks its secrets in the logs of this process.

    Raises: EnvironmentUnusable: Airflow has none of this id, or what it has cannot be read.
    """
    from airflow.sdk import Connection as AirflowConnection
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        found = AirflowConnection.get(conn_id)
        return connection_of(conn_id, {name: getattr(found, name) for name in _FIELDS})
    except (AirflowNotFoundException, ValueError) as error:
        says = f"cannot be read: {error}" if isinstance(error, ValueError) else "is not in Airflow"
        raise EnvironmentUnusable(
            f"Connection {conn_id} {says}. Nothing was run or changed.",
            hint=f"add or correct {conn_id} under Admin, Connections, or in Airflow's secrets backend",
            conn_id=conn_id,
        ) from None
