"""Connection types for an Airflow without the Amazon and Spark providers.

They are equivalent to the types `aws` and `spark_connect`. Jobs do not use these hooks: they read Connections directly.
Airflow uses them for the form of a Connection and its *Test* button.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook

from milepost.airflow.connections import airflow_connection
from milepost.errors import CheckpointError
from milepost.jobspec.job import spark_server


class S3Hook(BaseHook):
    """A Connection to S3 or a compatible store. `milepost doctor` checks its access to a job's buckets."""

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
                "login": "empty: the AWS configuration of the worker",
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
        """Return whether a server answers and accepts the token, and its description or the error."""
        from milepost.spark.driver.executors import check_server

        try:
            return True, check_server(spark_server(airflow_connection(self.conn_id)))
        except CheckpointError as error:
            return False, error.full_message()
