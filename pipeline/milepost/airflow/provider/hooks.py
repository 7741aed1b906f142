"""The kinds of Connection that Milepost brings, for an Airflow without the Amazon and Spark providers.

They say the same as their kinds `aws` and `spark_connect`. A job does not go through a hook: it looks its Connection up
itself. Airflow asks these what the form of a Connection shows, and what its *Test* button does.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook

from milepost.airflow.connections import airflow_connection
from milepost.errors import CheckpointError
from milepost.jobspec.job.connections import spark_server


class S3Hook(BaseHook):
    """A Connection to S3, or what speaks like it. Whether a job's buckets let it in, `milepost doctor` tells."""

    conn_name_attr = "conn_id"
    default_conn_name = "milepost_s3"
    conn_type = "milepost_s3"
    hook_name = "S3 (Milepost)"

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        return {
            "hidden_fields": ["host", "port", "schema"],
            "relabeling": {"login": "Access key id", "password": "Secret access key"},
            "placeholders": {
                "login": "empty: as the AWS tools are configured where a task runs",
                "extra": '{"region_name": "us-east-1", "endpoint_url": "", "aws_session_token": ""}',
            },
        }


class SparkHook(BaseHook):
    """A Connection to a Spark Connect server."""

    conn_name_attr = "conn_id"
    default_conn_name = "milepost_spark"
    conn_type = "milepost_spark"
    hook_name = "Spark Connect (Milepost)"

    def __init__(self, conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.conn_id = conn_id

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        return {
            "hidden_fields": ["schema", "login"],
            "relabeling": {"password": "Token"},
            "placeholders": {"host": "localhost", "port": "15002", "extra": '{"use_ssl": false}'},
        }

    def test_connection(self) -> tuple[bool, str]:
        """Return whether a server answers there and takes the token, and what it is."""
        from milepost.spark.driver.executors.probe import check_server

        try:
            return True, check_server(spark_server(airflow_connection(self.conn_id)))
        except CheckpointError as error:
            return False, error.full_message()
